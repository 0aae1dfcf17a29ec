//! A small deterministic tool-calling model, and some that misbehave.
//!
//! | model | what it does |
//! |---|---|
//! | `chat` (and any other name) | calls the first tool with the question, then answers from the first result with `[1]` |
//! | `chat-never-stops` | calls four tools in every reply, with ever new queries, whatever it is told |
//! | `chat-broken-json` | calls a tool with arguments that are cut JSON |
//! | `chat-unknown-tool` | calls a tool that nobody offered |
//! | `chat-no-search` | answers without a tool |
//! | `chat-false-citation` | searches, then cites a source that nobody gave it |

use serde_json::{Value, json};

use super::control::ScriptedReply;

/// How many tools `chat-never-stops` calls at a time.
const CALLS_THAT_NEVER_STOP: usize = 4;
/// What the instructions tell a model to say when the data does not answer.
const DONT_KNOW: &str = "I don't know: the available data does not answer this question.";
/// How much of a source an answer repeats.
const MAX_ANSWER_CHARS: usize = 200;

/// The body of the response to a chat request.
pub fn respond(body: &Value, scripted: Option<ScriptedReply>) -> Result<Value, String> {
    let model = body["model"].as_str().ok_or("you must provide a model parameter")?;
    let messages = body["messages"].as_array().ok_or("'messages' is an array")?;
    if messages.is_empty() {
        return Err("'messages' must not be empty".into());
    }
    let scripted_finish = scripted.as_ref().and_then(|reply| reply.finish_reason.clone());
    let message = match scripted {
        Some(reply) => play(reply, body),
        None => decide(model, body, messages),
    };
    let input_tokens = body["messages"].to_string().split_whitespace().count();
    let output_tokens = message.to_string().split_whitespace().count();
    let finish_reason = if message["tool_calls"].is_array() { "tool_calls" } else { "stop" };
    let finish_reason = scripted_finish.unwrap_or_else(|| finish_reason.to_owned());
    Ok(json!({
        "id": "chatcmpl-fake", "object": "chat.completion", "created": 0, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": input_tokens, "completion_tokens": output_tokens,
                  "total_tokens": input_tokens + output_tokens},
    }))
}

fn play(reply: ScriptedReply, body: &Value) -> Value {
    if let Some(message) = reply.message {
        let tool = first_tool(body).unwrap_or_default();
        return serde_json::from_str(&message.to_string().replace("TOOL", &tool)).expect("a name of a tool is plain");
    }
    if reply.tool_calls.is_empty() {
        return says(reply.content.as_deref().unwrap_or(""));
    }
    let calls = reply
        .tool_calls
        .into_iter()
        .map(|call| (call.name.unwrap_or_else(|| first_tool(body).unwrap_or_default()), call.arguments))
        .collect();
    let mut message = calls_tools(calls);
    message["content"] = json!(reply.content);
    message
}

fn decide(model: &str, body: &Value, messages: &[Value]) -> Value {
    let question = question(messages);
    let evidence = evidence(messages);
    let tool = first_tool(body);
    match model {
        "chat-never-stops" => {
            let round = messages.len();
            let calls = (0..CALLS_THAT_NEVER_STOP)
                .map(|n| (tool.clone().unwrap_or("search".into()), query(&format!("{question} {round} {n}"))))
                .collect();
            calls_tools(calls)
        }
        "chat-broken-json" if evidence.is_empty() && tool.is_some() => {
            calls_tools(vec![(tool.unwrap_or_default(), r#"{"query": "cut in the mid"#.into())])
        }
        "chat-unknown-tool" if evidence.is_empty() && tool.is_some() => {
            calls_tools(vec![("launch_rockets".into(), query(&question))])
        }
        "chat-no-search" => says("Nothing needs to be looked up to say hello."),
        "chat-false-citation" if !evidence.is_empty() => says("This is certain [1], and this as well [99]."),
        _ if evidence.is_empty() && tool.is_some() => calls_tools(vec![(tool.unwrap_or_default(), query(&question))]),
        _ => match first_source(&evidence) {
            Some(text) => says(&format!("{text} [1]")),
            None => says(DONT_KNOW),
        },
    }
}

fn says(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn calls_tools(calls: Vec<(String, String)>) -> Value {
    let calls: Vec<Value> = calls
        .into_iter()
        .enumerate()
        .map(|(n, (name, arguments))| {
            json!({"id": format!("call_{n}"), "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

fn query(text: &str) -> String {
    json!({"query": text}).to_string()
}

/// The name of the first tool on offer, unless the request forbids tools.
fn first_tool(body: &Value) -> Option<String> {
    if body["tool_choice"] == "none" {
        return None;
    }
    body["tools"][0]["function"]["name"].as_str().map(str::to_owned)
}

/// The first user message: what the person asked.
fn question(messages: &[Value]) -> String {
    let user = messages.iter().find(|m| m["role"] == "user");
    user.and_then(|m| m["content"].as_str()).unwrap_or("").to_owned()
}

/// Everything the tools have answered.
fn evidence(messages: &[Value]) -> String {
    let answers: Vec<&str> =
        messages.iter().filter(|m| m["role"] == "tool").filter_map(|m| m["content"].as_str()).collect();
    answers.join("\n")
}

/// The text of the passage with number 1, as the extension delimits it.
fn first_source(evidence: &str) -> Option<String> {
    let passage = &evidence[evidence.find("<passage n=\"1\"")?..];
    let (_, text) = passage.split_once(">\n")?;
    let (text, _) = text.split_once("\n</passage>")?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let text: String = words.join(" ").chars().take(MAX_ANSWER_CHARS).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = "<search_results collection=\"c\" query=\"q\">\n<passage n=\"1\" score=\"0.9\" title=\"t\">\n\
                           Thirty days.\n</passage>\n<passage n=\"2\" score=\"0.8\">\nOther.\n</passage>\n</search_results>\n";

    fn asked(model: &str, with_results: bool) -> Value {
        let mut messages =
            vec![json!({"role": "system", "content": "Answer."}), json!({"role": "user", "content": "how many days?"})];
        if with_results {
            messages.push(json!({"role": "assistant", "content": null, "tool_calls": []}));
            messages.push(json!({"role": "tool", "tool_call_id": "call_0", "content": RESULTS}));
        }
        let tools = json!([{"type": "function", "function": {"name": "search_handbook", "parameters": {}}}]);
        json!({"model": model, "messages": messages, "tools": tools})
    }

    fn message(model: &str, with_results: bool) -> Value {
        respond(&asked(model, with_results), None).expect("a good request")["choices"][0]["message"].clone()
    }

    #[test]
    fn it_searches_first_and_then_answers_from_what_it_found() {
        let first = message("chat", false);
        assert_eq!(first["tool_calls"][0]["function"]["name"], "search_handbook");
        assert_eq!(first["tool_calls"][0]["function"]["arguments"], r#"{"query":"how many days?"}"#);
        assert_eq!(message("chat", true)["content"], "Thirty days. [1]");
    }

    #[test]
    fn the_misbehaving_ones_misbehave() {
        assert_eq!(message("chat-never-stops", true)["tool_calls"].as_array().map(Vec::len), Some(4));
        let arguments = message("chat-broken-json", false)["tool_calls"][0]["function"]["arguments"].clone();
        assert!(serde_json::from_str::<Value>(arguments.as_str().expect("text")).is_err());
        assert_eq!(message("chat-unknown-tool", false)["tool_calls"][0]["function"]["name"], "launch_rockets");
        assert!(message("chat-no-search", false)["tool_calls"].is_null());
        assert!(message("chat-false-citation", true)["content"].as_str().is_some_and(|c| c.contains("[99]")));
    }

    #[test]
    fn a_script_goes_before_the_policy() {
        let reply: ScriptedReply =
            serde_json::from_value(json!({"tool_calls": [{"arguments": "{"}]})).expect("a good script");
        let answer = respond(&asked("chat", false), Some(reply)).expect("a good request");
        assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "search_handbook");
        assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    }
}
