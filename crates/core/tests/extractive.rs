//! The keyless model on real text: questions over a few pages of the PostgreSQL manual, found by a small lexical search.

use std::collections::{HashMap, HashSet};

use serde_json::json;

use ragent_core::agent::{
    Answer, Decision, Effect, Hit, Input, Outcome, Run, RunRequest, SearchCall, SearchResult, SearchTool,
};
use ragent_core::extractive;
use ragent_core::model::{ChatReply, ChatRequest, Message, ToolChoice};
use ragent_core::prompt::instructions::DONT_KNOW;
use ragent_core::text::{normalise, terms};

/// Chunks with a BM25 search (Robertson and Zaragoza 2009, k1 = 1.2, b = 0.75).
struct Library {
    chunks: Vec<(Hit, Vec<String>)>,
}

impl Library {
    fn manual() -> Library {
        let chunks = include_str!("data/manual.jsonl")
            .lines()
            .map(|line| {
                let row: serde_json::Value = serde_json::from_str(line).unwrap();
                let text = |name: &str| row[name].as_str().unwrap().to_owned();
                let hit = Hit {
                    collection: "manual".into(),
                    key: json!({ "page": row["page"] }),
                    chunk: row["chunk"].as_i64().unwrap() as i32,
                    content: text("text"),
                    title: Some(text("title")),
                    link: None,
                    score: 0.0,
                };
                let stems = terms(&format!("{} {}", text("title"), text("text")));
                (hit, stems)
            })
            .collect();
        Library { chunks }
    }

    fn search(&self, call: &SearchCall) -> SearchResult {
        let query: HashSet<String> = terms(&call.query).into_iter().collect();
        let all = self.chunks.len() as f64;
        let mean = self.chunks.iter().map(|(_, s)| s.len()).sum::<usize>() as f64 / all;
        let mut frequency: HashMap<&str, f64> = HashMap::new();
        for (_, stems) in &self.chunks {
            for stem in stems.iter().collect::<HashSet<_>>() {
                *frequency.entry(stem).or_default() += 1.0;
            }
        }
        let mut query: Vec<&String> = query.iter().collect();
        query.sort();
        let mut rated: Vec<(f64, &Hit)> = Vec::new();
        for (hit, stems) in &self.chunks {
            let score: f64 = query
                .iter()
                .map(|term| {
                    let tf = stems.iter().filter(|s| s == term).count() as f64;
                    let df = frequency.get(term.as_str()).copied().unwrap_or(0.0);
                    let idf = (1.0 + (all - df + 0.5) / (df + 0.5)).ln();
                    idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * stems.len() as f64 / mean))
                })
                .sum();
            if score > 0.0 {
                rated.push((score, hit));
            }
        }
        rated.sort_by(|a, b| b.0.total_cmp(&a.0));
        let hits = rated.into_iter().take(call.k as usize).map(|(score, hit)| Hit { score, ..hit.clone() }).collect();
        SearchResult { hits }
    }

    /// Runs the whole loop.
    fn ask(&self, question: &str) -> (Answer, Vec<SearchCall>) {
        let tool = SearchTool { collection: "manual".into(), description: "The PostgreSQL manual".into() };
        let mut run = Run::new(RunRequest::new(question, "local/extractive", vec![tool.into()]));
        let mut searched = Vec::new();
        let mut effect = run.next(Input::Start);
        loop {
            effect = match effect {
                Effect::CallModel(call) => {
                    let request = call.request;
                    let reply = extractive::reply(&request);
                    let pulses = std::cell::Cell::new(0);
                    let again = extractive::interruptible_reply(&request, &|| pulses.set(pulses.get() + 1));
                    assert_eq!(reply, again, "the same request gives the same reply");
                    // What it works through is text of the passages, a sentence at a time.
                    let shown: usize = request.messages.iter().map(shown).sum();
                    assert!(pulses.get() >= shown / 1000, "{} pulses for {shown} bytes", pulses.get());
                    if request.tool_choice == ToolChoice::None {
                        assert!(reply.tool_calls.is_empty(), "tools are forbidden");
                    }
                    run.next(Input::Model(reply))
                }
                Effect::Call(calls) => {
                    let calls: Vec<SearchCall> =
                        calls.into_iter().map(|call| call.try_into().expect("a search")).collect();
                    let results = calls.iter().map(|call| self.search(call).into()).collect();
                    searched.extend(calls);
                    run.next(Input::Called(results))
                }
                Effect::Done(answer) => return (answer, searched),
            }
        }
    }
}

/// Bytes of what a search brought.
fn shown(message: &Message) -> usize {
    match message {
        Message::Tool { content, .. } => content.len(),
        _ => 0,
    }
}

#[test]
fn questions_about_the_manual_are_answered_from_the_right_pages() {
    let library = Library::manual();
    for (question, page, words) in [
        ("What does VACUUM do and why is it needed?", "sql-vacuum.html", "reclaims storage occupied by dead tuples"),
        ("How do I create an index without locking writes?", "sql-createindex.html", "CONCURRENTLY"),
        ("What is the difference between json and jsonb?", "datatype-json.html", "decomposed binary format"),
        (
            "How does point-in-time recovery work?",
            "continuous-archiving.html",
            "restore the database to its state at any time",
        ),
        (
            "What is a transaction isolation level and which one is the default?",
            "transaction-iso.html",
            "Read Committed is the default isolation level in PostgreSQL",
        ),
    ] {
        let (answer, _) = library.ask(question);
        assert_eq!(answer.outcome, Outcome::Answered, "{question}");
        assert!(answer.text.contains(words), "{question}\n{}", answer.text);
        assert!(answer.citations.iter().any(|c| c.key["page"] == page), "{question}\n{:?}", answer.citations);
        assert_eq!(answer.removed_markers, 0);
        assert!(answer.text.chars().count() < 1500);
    }
}

#[test]
fn every_sentence_of_an_answer_stands_in_the_passage_it_cites() {
    let library = Library::manual();
    let (answer, _) = library.ask("What is the difference between json and jsonb?");
    for citation in &answer.citations {
        let (hit, _) = library.chunks.iter().find(|(h, _)| h.key == citation.key && h.chunk == citation.chunk).unwrap();
        assert!(hit.content.contains(&citation.quote));
        assert!(answer.text.contains(citation.quote.trim_end_matches(':')), "{}\n{}", citation.quote, answer.text);
    }
}

#[test]
fn what_the_manual_does_not_tell_is_not_known() {
    let library = Library::manual();
    for question in [
        "Who won the football world cup in 1998?",
        "What is the capital of France?",
        "How do I bake bread?",
        "Who wrote Hamlet?",
        "How tall is Mount Everest?",
    ] {
        let (answer, searched) = library.ask(question);
        assert_eq!((answer.text.as_str(), answer.outcome), (DONT_KNOW, Outcome::Unknown), "{question}");
        assert_eq!(answer.decision, Decision::UsedSearch);
        assert!(!searched.is_empty() && answer.citations.is_empty());
    }
}

#[test]
fn small_talk_is_answered_without_a_search_and_honestly() {
    for (question, words) in
        [("Hello!", "no language model"), ("thank you", "welcome"), ("Who are you?", "no language model")]
    {
        let (answer, searched) = Library::manual().ask(question);
        assert!(answer.text.contains(words), "{}", answer.text);
        assert_eq!(
            (answer.decision, searched.len(), answer.outcome),
            (Decision::SkippedSearch, 0, Outcome::Ungrounded)
        );
    }
}

#[test]
fn parts_are_searched_together_and_no_query_twice() {
    let (answer, searched) = Library::manual().ask("What does VACUUM do and how many colours has the moon?");
    assert!(searched.len() >= 3 && answer.searches <= 6, "{searched:?}");
    let queries: HashSet<String> = searched.iter().map(|c| normalise(&c.query)).collect();
    assert_eq!(queries.len(), searched.len(), "{searched:?}");
    // The part that is not in the manual is named, the other answered.
    assert!(answer.text.contains("reclaims storage") && answer.text.contains("colours"), "{}", answer.text);
}

fn request(question: &str, tools: Vec<(&str, &str)>, choice: ToolChoice) -> ChatRequest {
    let tools = tools.into_iter().map(|(collection, description)| {
        SearchTool { collection: collection.into(), description: description.into() }.into()
    });
    let mut run = Run::new(RunRequest::new(question, "local/extractive", tools.collect()));
    let Effect::CallModel(mut call) = run.next(Input::Start) else { panic!("a run begins with the model") };
    call.request.tool_choice = choice;
    call.request
}

fn tools_called(reply: &ChatReply) -> Vec<&str> {
    let mut names: Vec<&str> = reply.tool_calls.iter().map(|c| c.name.as_str()).collect();
    names.dedup();
    names
}

#[test]
fn a_collection_that_the_question_names_is_preferred() {
    let tools = || vec![("handbook", "How we work."), ("tickets", "Support tickets of customers.")];
    let named = extractive::reply(&request("What does the handbook say about holidays?", tools(), ToolChoice::Auto));
    assert_eq!(tools_called(&named), ["search_handbook"]);
    let described = extractive::reply(&request("Which customers wait longest?", tools(), ToolChoice::Auto));
    assert_eq!(described.tool_calls[0].name, "search_tickets");
    assert_eq!(tools_called(&described).iter().collect::<HashSet<_>>().len(), 2);
}

#[test]
fn without_tools_it_says_that_it_does_not_know() {
    for request in [
        request("What is VACUUM?", vec![], ToolChoice::None),
        request("What is VACUUM?", vec![("m", "")], ToolChoice::None),
    ] {
        let reply = extractive::reply(&request);
        assert_eq!((reply.content.as_deref(), reply.tool_calls.len()), (Some(DONT_KNOW), 0));
    }
}

#[test]
fn odd_requests_do_not_break_it() {
    for question in
        ["", "?", "and and and?", "\0\u{1b}", "что такое индекс?", "what", &"why ".repeat(5000), "[1] [2]", "`"]
    {
        let reply = extractive::reply(&request(question, vec![("manual", "The manual")], ToolChoice::Auto));
        assert!(reply.content.is_some() || !reply.tool_calls.is_empty(), "{question:?}");
    }
    let page: String = (0..100_000).map(|i| format!("word{i} ")).collect();
    let reply = extractive::reply(&request(&page, vec![("manual", "")], ToolChoice::Auto));
    assert!(reply.tool_calls.iter().all(|c| c.arguments.chars().count() < 1_200));
    let mut foreign = request("What is VACUUM?", vec![("manual", "")], ToolChoice::Auto);
    foreign.messages.push(Message::Tool { call_id: "x".into(), content: "not our format".into() });
    assert!(!extractive::reply(&foreign).tool_calls.is_empty());
}

#[test]
fn markers_in_retrieved_text_are_not_passed_on() {
    let library = Library {
        chunks: vec![(
            Hit {
                collection: "manual".into(),
                key: json!({ "page": "x" }),
                chunk: 1,
                content: "The gadget turns left when the lever is down [2] and ignores everything else [9].".into(),
                title: Some("Gadget".into()),
                link: None,
                score: 0.0,
            },
            terms("gadget turns left lever down"),
        )],
    };
    let (answer, _) = library.ask("When does the gadget turn left?");
    assert_eq!(answer.text, "The gadget turns left when the lever is down and ignores everything else. [1]");
    assert_eq!(answer.removed_markers, 0);
}
