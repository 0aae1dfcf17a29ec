//! `POST /chat/completions`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::OpenAi;
use crate::model::{ChatReply, ChatRequest, Message, ToolCall, ToolChoice, ToolSpec, Usage};
use crate::provider::reply::parse_json;
use crate::provider::{Call, Chat, ReplyError, Settings, join_url, message};

impl Chat for OpenAi {
    fn request(&self, settings: &Settings, model: &str, chat: &ChatRequest) -> Call {
        Call { url: join_url(&settings.base_url, "/chat/completions"), body: body(model, chat) }
    }

    fn reply(&self, body: &[u8]) -> Result<ChatReply, ReplyError> {
        read_reply(body)
    }
}

fn body(model: &str, r: &ChatRequest) -> Vec<u8> {
    let mut body = json!({ "model": model, "messages": r.messages.iter().map(write_message).collect::<Vec<_>>() });
    if !r.tools.is_empty() {
        body["tools"] = r.tools.iter().map(write_tool).collect();
        body["tool_choice"] = match r.tool_choice {
            ToolChoice::Auto => "auto".into(),
            ToolChoice::None => "none".into(),
        };
    }
    if let Some(limit) = r.max_output_tokens {
        // The older name: `max_completion_tokens` is unknown to most compatible servers.
        body["max_tokens"] = limit.into();
    }
    body.to_string().into_bytes()
}

fn write_message(message: &Message) -> Value {
    match message {
        Message::System(text) => json!({ "role": "system", "content": text }),
        Message::User(text) => json!({ "role": "user", "content": text }),
        Message::Assistant { content, tool_calls } if tool_calls.is_empty() => {
            json!({ "role": "assistant", "content": content.as_deref().unwrap_or("") })
        }
        Message::Assistant { content, tool_calls } => json!({
            "role": "assistant",
            "content": content,
            "tool_calls": tool_calls.iter().map(write_call).collect::<Vec<_>>(),
        }),
        Message::Tool { call_id, content } => {
            json!({ "role": "tool", "tool_call_id": call_id, "content": content })
        }
    }
}

fn write_call(call: &ToolCall) -> Value {
    // Several servers parse the history's arguments and fail the whole request on broken ones; the tool's message
    // already tells the model what was wrong with them.
    let sound = matches!(serde_json::from_str(&call.arguments), Ok(Value::Object(_)));
    let arguments = if sound { call.arguments.as_str() } else { "{}" };
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
}

fn write_tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": { "name": tool.name, "description": tool.description, "parameters": tool.parameters },
    })
}

#[derive(Deserialize)]
struct Reply {
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    message: Option<Assistant>,
    finish_reason: Option<Value>,
}

#[derive(Deserialize)]
struct Assistant {
    content: Option<Value>,
    refusal: Option<Value>,
    tool_calls: Option<Value>,
    function_call: Option<Value>,
}

/// Reads the first choice of a reply.
///
/// Liberal: content may be null, a string or a list of parts; arguments may be an object; ids may be missing (then they
/// are `call_1`, `call_2`, … by place); the older `function_call` is a tool call; unknown fields are ignored; a missing
/// usage is zero; `finish_reason` "length" sets `truncated`.
///
/// An error for a body that is no JSON or is cut, an error in a success body, no choices, or a choice without a message.
fn read_reply(body: &[u8]) -> Result<ChatReply, ReplyError> {
    let reply: Reply = parse_json(body)?;
    let Some(choice) = reply.choices.and_then(|choices| choices.into_iter().next()) else {
        return Err(match reply.error {
            Some(error) if !error.is_null() => ReplyError::Reported(message::error_message(body)),
            _ => ReplyError::NoChoices(message::printable(body, 120)),
        });
    };
    let Some(message) = choice.message else {
        return Err(ReplyError::Shape(format!("choice 0 has no message in {}", message::printable(body, 120))));
    };
    let content = text_of(message.content.as_ref()).or_else(|| text_of(message.refusal.as_ref()));
    let mut tool_calls = read_calls(message.tool_calls.as_ref());
    if tool_calls.is_empty() {
        tool_calls.extend(message.function_call.as_ref().and_then(|call| read_call(call, 1)));
    }
    Ok(ChatReply {
        content,
        tool_calls,
        usage: usage(reply.usage.as_ref()),
        truncated: choice.finish_reason.as_ref().and_then(Value::as_str) == Some("length"),
    })
}

/// Text of a content: a string, or the text parts of a list joined; `None` when there is none.
fn text_of(content: Option<&Value>) -> Option<String> {
    match content? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Vec<String> = parts
                .iter()
                .filter_map(|part| match part {
                    Value::String(text) => Some(text.clone()),
                    // A part of another type ("thinking") may have a text too, which is not part of the answer.
                    Value::Object(map) => match map.get("type").and_then(Value::as_str) {
                        None | Some("text" | "output_text" | "refusal") => {
                            text_of(map.get("text").or_else(|| map.get("refusal")))
                        }
                        Some(_) => None,
                    },
                    _ => None,
                })
                .collect();
            (!texts.is_empty()).then(|| texts.concat())
        }
        _ => None,
    }
}

fn read_calls(calls: Option<&Value>) -> Vec<ToolCall> {
    match calls {
        Some(Value::Array(calls)) => calls.iter().enumerate().filter_map(|(i, call)| read_call(call, i + 1)).collect(),
        Some(call @ Value::Object(_)) => read_call(call, 1).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// One call: `{"id", "function": {"name", "arguments"}}`, or name and arguments at the top.
/// `None` only for what is no object: a call without a name is kept, so that the model can be told.
fn read_call(call: &Value, number: usize) -> Option<ToolCall> {
    let object = call.as_object()?;
    let function = object.get("function").and_then(Value::as_object).unwrap_or(object);
    let id = object.get("id").and_then(Value::as_str).filter(|id| !id.trim().is_empty());
    let arguments = match function.get("arguments").or_else(|| function.get("parameters")) {
        Some(Value::String(text)) if text.trim().is_empty() => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "{}".to_owned(),
        Some(other) => other.to_string(),
    };
    Some(ToolCall {
        id: id.map_or_else(|| format!("call_{number}"), str::to_owned),
        name: function.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
        arguments,
    })
}

/// Usage under OpenAI's names or the newer `input_tokens`/`output_tokens`; zero for what is missing or no number.
pub(super) fn usage(usage: Option<&Value>) -> Usage {
    let read = |names: [&str; 2]| {
        let number = names.iter().find_map(|name| usage?.get(name));
        number.and_then(|n| n.as_u64().or_else(|| n.as_f64().map(|f| f as u64))).unwrap_or(0)
    };
    Usage {
        input_tokens: read(["prompt_tokens", "input_tokens"]),
        output_tokens: read(["completion_tokens", "output_tokens"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::openai::tests::settings;

    fn reply(message: Value) -> ChatReply {
        let body = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
        OpenAi.reply(body.to_string().as_bytes()).unwrap()
    }

    fn sent(request: &ChatRequest) -> Value {
        let call = OpenAi.request(&settings(&[]), "m", request);
        assert_eq!(call.url, "http://h/v1/chat/completions");
        serde_json::from_slice(&call.body).unwrap()
    }

    fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn the_body_holds_every_message_in_the_published_shape() {
        let request = ChatRequest {
            messages: vec![
                Message::System("s".into()),
                Message::User("u".into()),
                Message::Assistant {
                    content: None,
                    tool_calls: vec![call("c1", "f", r#"{"query":"x"}"#), call("c2", "f", "{broken")],
                },
                Message::Tool { call_id: "c1".into(), content: "t".into() },
                Message::Assistant { content: Some("a".into()), tool_calls: vec![] },
            ],
            tools: vec![ToolSpec { name: "f".into(), description: "d".into(), parameters: json!({"type": "object"}) }],
            tool_choice: ToolChoice::None,
            max_output_tokens: Some(99),
        };
        let body = sent(&request);
        assert_eq!(
            body,
            json!({
                "model": "m",
                "messages": [
                    {"role": "system", "content": "s"},
                    {"role": "user", "content": "u"},
                    {"role": "assistant", "content": null, "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"query\":\"x\"}"}},
                        {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    ]},
                    {"role": "tool", "tool_call_id": "c1", "content": "t"},
                    {"role": "assistant", "content": "a"},
                ],
                "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
                "tool_choice": "none",
                "max_tokens": 99,
            })
        );
    }

    #[test]
    fn without_tools_no_tool_field_is_sent() {
        let request =
            ChatRequest { messages: vec![], tools: vec![], tool_choice: ToolChoice::Auto, max_output_tokens: None };
        let body = sent(&request);
        assert_eq!(body, json!({"model": "m", "messages": []}));
    }

    #[test]
    fn content_is_read_in_all_its_forms() {
        assert_eq!(reply(json!({"content": "hi", "reasoning": "…", "annotations": []})).content.as_deref(), Some("hi"));
        assert_eq!(reply(json!({"content": null})).content, None);
        assert_eq!(reply(json!({})).content, None);
        let parts = json!([{"type": "thinking", "text": "hm"}, {"type": "text", "text": "a"}, "b", {"text": "c"}, {"type": "image"}]);
        assert_eq!(reply(json!({"content": parts})).content.as_deref(), Some("abc"));
        assert_eq!(reply(json!({"content": null, "refusal": "no"})).content.as_deref(), Some("no"));
    }

    #[test]
    fn tool_calls_are_read_in_all_their_forms() {
        let calls = json!([
            {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{\"query\":\"a\"}"}},
            {"type": "function", "function": {"name": "f", "arguments": {"query": "a"}}},
            {"id": "", "name": "f", "arguments": null},
            {"id": "y", "function": {"name": "f", "arguments": ""}},
            {"id": "z", "function": {"arguments": "{\"query\":"}},
            "nonsense",
        ]);
        assert_eq!(
            reply(json!({"content": null, "tool_calls": calls})).tool_calls,
            [
                call("x", "f", r#"{"query":"a"}"#),
                call("call_2", "f", r#"{"query":"a"}"#),
                call("call_3", "f", "{}"),
                call("y", "f", "{}"),
                call("z", "", r#"{"query":"#),
            ]
        );
        assert_eq!(
            reply(json!({"function_call": {"name": "f", "arguments": "{}"}})).tool_calls,
            [call("call_1", "f", "{}")]
        );
        assert!(reply(json!({"content": "x", "tool_calls": null, "function_call": null})).tool_calls.is_empty());
    }

    #[test]
    fn length_is_truncated_and_usage_is_optional() {
        let body = br#"{"choices":[{"message":{"content":"x"},"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":4.0}}"#;
        let read = OpenAi.reply(body).unwrap();
        assert!(read.truncated);
        assert_eq!(read.usage, Usage { input_tokens: 3, output_tokens: 4 });
        assert_eq!(reply(json!({"content": "x"})).usage, Usage::default());
        let null =
            OpenAi.reply(br#"{"choices":[{"message":{"content":"x"},"finish_reason":null}],"usage":null}"#).unwrap();
        assert!(!null.truncated && null.usage == Usage::default());
    }

    #[test]
    fn a_reply_without_a_choice_is_an_error() {
        for body in ["{}", r#"{"choices":[]}"#, r#"{"choices":null,"error":null}"#] {
            assert_eq!(OpenAi.reply(body.as_bytes()).unwrap_err(), ReplyError::NoChoices(body.into()));
        }
        assert_eq!(
            OpenAi.reply(br#"{"error":{"message":"busy"}}"#).unwrap_err().to_string(),
            "provider reported an error: busy"
        );
        assert!(matches!(OpenAi.reply(br#"{"choices":[{}]}"#), Err(ReplyError::Shape(_))));
        assert!(matches!(OpenAi.reply(b"<html>"), Err(ReplyError::NotJson { .. })));
        assert!(matches!(OpenAi.reply(br#"{"choices":[{"message":{"con"#), Err(ReplyError::Cut { .. })));
    }
}
