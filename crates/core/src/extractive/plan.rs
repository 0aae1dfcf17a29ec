//! Which searches to make.

use std::collections::HashSet;

use super::answer;
use super::conversation::Conversation;
use super::passage::Found;
use super::question::{Question, Term};
use crate::model::{ToolCall, ToolSpec};
use crate::text::{is_stop_word, normalise, stem, terms, words};

/// Searches of the first message, which leaves some of the run's for what turns out to be missing.
const FIRST: usize = 4;
/// Searches of each later message.
const LATER: usize = 2;
/// Messages with searches altogether.
const ROUNDS: usize = 3;
/// Passages asked for by each search.
const K: u64 = 10;

/// The tool calls to make now; none when it is time to answer.
pub(super) fn calls(
    question: &Question,
    conversation: &Conversation,
    found: &Found,
    tools: &[ToolSpec],
) -> Vec<ToolCall> {
    let tools = relevant(question, tools);
    if tools.is_empty() || conversation.rounds >= ROUNDS {
        return Vec::new();
    }
    let first = conversation.rounds == 0;
    let queries = if first { first_queries(question) } else { missing_queries(question, found) };
    let mut asked: HashSet<(String, String)> =
        conversation.queries.iter().map(|(tool, query)| (tool.clone(), normalise(query))).collect();
    let mut calls = Vec::new();
    for query in queries {
        for tool in &tools {
            if calls.len() < if first { FIRST } else { LATER } && asked.insert((tool.name.clone(), normalise(&query))) {
                calls.push(call(tool, &query, asked.len()));
            }
        }
    }
    calls
}

fn call(tool: &ToolSpec, query: &str, number: usize) -> ToolCall {
    let most = tool.parameters.pointer("/properties/k/maximum").and_then(serde_json::Value::as_u64);
    let mut arguments = serde_json::json!({ "query": query });
    if let Some(most) = most {
        arguments["k"] = K.min(most).into();
    }
    ToolCall {
        id: format!("search-{number}"),
        name: tool.name.clone(),
        arguments: arguments.to_string(),
        ..ToolCall::default()
    }
}

/// The search tools worth asking: those whose collection the question names, else all, best described first.
fn relevant<'a>(question: &Question, tools: &'a [ToolSpec]) -> Vec<&'a ToolSpec> {
    let asked: HashSet<&str> = question.terms.iter().map(|t| t.stem.as_str()).collect();
    let said: HashSet<String> = words(&question.text).into_iter().map(|(_, w)| stem(&w)).collect();
    let mut rated: Vec<(bool, usize, &ToolSpec)> = tools
        .iter()
        .filter(|tool| tool.parameters.pointer("/properties/query").is_some())
        .map(|tool| {
            let name = tool.name.strip_prefix("search_").unwrap_or(&tool.name).replace(['_', '-'], " ");
            let name: Vec<String> = words(&name).into_iter().map(|(_, w)| stem(&w)).collect();
            let named = !name.is_empty() && name.iter().all(|w| said.contains(w));
            let described: HashSet<String> = terms(&tool.description).into_iter().collect();
            (named, asked.iter().filter(|t| described.contains(**t)).count(), tool)
        })
        .collect();
    if rated.iter().any(|(named, _, _)| *named) {
        rated.retain(|(named, _, _)| *named);
    }
    // A stable sort: tools that are described equally well stay in their order.
    rated.sort_by_key(|(_, overlap, _)| std::cmp::Reverse(*overlap));
    rated.into_iter().map(|(_, _, tool)| tool).collect()
}

/// The whole question, its parts, the sides of a comparison, the names in it.
fn first_queries(question: &Question) -> Vec<String> {
    let mut queries = vec![question.text.clone()];
    if question.parts.len() == 1 && question.terms.len() > 1 {
        // The bare words find other passages than the sentence does.
        queries.push(words_of(question));
    } else {
        queries.extend(question.parts.iter().map(|part| part.text.clone()));
    }
    queries.extend(question.sides.iter().cloned());
    queries.extend(question.names.iter().take(2).cloned());
    queries
}

/// Queries for what the evidence does not cover: words that no passage has, parts that no sentence answers; with names
/// that the best sentence brings in, which is how a second hop is found.
fn missing_queries(question: &Question, found: &Found) -> Vec<String> {
    if found.passages.is_empty() {
        // Nothing at all was found: the bare words may do better than the sentence.
        return vec![words_of(question)];
    }
    let mut queries = Vec::new();
    let absent: Vec<&str> =
        question.terms.iter().filter(|t| t.weight >= 1.0 && !found.has(&t.stem)).map(|t| t.word.as_str()).collect();
    for part in &question.parts {
        let Some(best) = answer::best(part, question, found) else {
            queries.push(part.text.clone());
            continue;
        };
        let sentence = &found.sentences[best.sentence];
        let open: Vec<&Term> = part.terms.iter().filter(|t| !sentence.stems.contains(&t.stem)).collect();
        let words = |terms: &[&Term]| terms.iter().map(|t| t.word.as_str()).collect::<Vec<_>>().join(" ");
        // A word that makes this part a question of its own is missing: the part in bare words, that word first.
        if open.iter().any(|t| t.weight >= 1.0 && !part.borrowed.contains(&t.stem)) {
            let (own, borrowed): (Vec<&Term>, Vec<&Term>) =
                part.terms.iter().partition(|t| !part.borrowed.contains(&t.stem));
            queries.push(words(&[own, borrowed].concat()));
        }
        // Names that the best sentence has and the question has not, those of several words first.
        if best.covered < 0.6 && !open.is_empty() {
            let mut names = new_names(&sentence.text, question);
            names.sort_by_key(|name| !name.contains(' '));
            queries.extend(names.iter().take(2).map(|name| format!("{name} {}", words(&open))));
        }
        // Where good sentences send the reader.
        queries.extend(answer::ranked_sentences(part, question, found).take(12).find_map(|s| referred(&s.text)));
    }
    if !absent.is_empty() {
        let context = question.terms.iter().filter(|t| t.weight >= 1.0 && found.has(&t.stem)).take(3);
        let mut query = absent;
        query.extend(context.map(|t| t.word.as_str()));
        queries.push(query.join(" "));
    }
    queries
}

fn words_of(question: &Question) -> String {
    question.terms.iter().map(|t| t.word.as_str()).collect::<Vec<_>>().join(" ")
}

/// The title that a sentence refers to: "see Building Indexes Concurrently".
fn referred(sentence: &str) -> Option<String> {
    let at = sentence.find("see ").or_else(|| sentence.find("See "))? + "see ".len();
    let title: Vec<&str> = sentence[at..]
        .split([' ', '.', ',', ';', ')', '('])
        .take_while(|w| w.starts_with(char::is_uppercase))
        .filter(|w| !matches!(*w, "Section" | "Chapter" | "Table" | "Appendix" | "Part" | "Figure" | "Example"))
        .collect();
    (title.len() > 1).then(|| title.join(" "))
}

fn new_names(sentence: &str, question: &Question) -> Vec<String> {
    let known: HashSet<String> = words(&question.text).into_iter().map(|(_, w)| w).collect();
    let found = words(sentence);
    let mut names: Vec<String> = Vec::new();
    let mut end = None;
    for (n, (range, lower)) in found.iter().enumerate() {
        let capital = sentence[range.clone()].starts_with(char::is_uppercase);
        if !capital || known.contains(lower) || (n == 0 && is_stop_word(lower)) {
            continue;
        }
        let adjacent = end.is_some_and(|end: usize| &sentence[end..range.start] == " ");
        match names.last_mut() {
            Some(name) if adjacent => {
                name.push(' ');
                name.push_str(&sentence[range.clone()]);
            }
            _ => names.push(sentence[range.clone()].to_owned()),
        }
        end = Some(range.end);
    }
    names
}
