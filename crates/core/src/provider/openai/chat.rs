//! `POST /chat/completions`.

use std::borrow::Cow;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::OpenAi;
use crate::model::{
    ChatReply, ChatRequest, Finish, MAX_CALLS, Message, OwnFields, ToolCall, ToolChoice, ToolSpec, Usage,
};
use crate::provider::json::{Fields, First};
use crate::provider::reply::{reported, reported_by};
use crate::provider::{Call, Chat, ReplyError, Settings, json, message};

impl Chat for OpenAi {
    fn request(&self, settings: &Settings, model: &str, chat: &ChatRequest) -> Call {
        Call { url: super::url(settings, "/chat/completions"), body: body(model, chat) }
    }

    fn reply(&self, body: &[u8]) -> Result<ChatReply, ReplyError> {
        read_reply(body)
    }
}

fn body(model: &str, r: &ChatRequest) -> Vec<u8> {
    let tool_choice = match r.tool_choice {
        ToolChoice::Auto => "auto",
        ToolChoice::None => "none",
    };
    let offers = !r.tools.is_empty();
    let body = Body {
        model,
        messages: r.messages.iter().map(Written).collect(),
        tools: offers.then(|| r.tools.iter().map(write_tool).collect()),
        tool_choice: offers.then_some(tool_choice),
        max_tokens: r.max_output_tokens,
    };
    serde_json::to_vec(&body).expect("a request can be written as JSON")
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Written<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'a str>,
    /// The older name: `max_completion_tokens` is unknown to most compatible servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
}

/// A message as it is sent.
struct Written<'a>(&'a Message);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.0 {
            Message::System(text) => {
                map.serialize_entry("role", "system")?;
                map.serialize_entry("content", text)?;
            }
            Message::User(text) => {
                map.serialize_entry("role", "user")?;
                map.serialize_entry("content", text)?;
            }
            Message::Assistant { content, tool_calls, own } => {
                map.serialize_entry("role", "assistant")?;
                if !own.0.contains_key("content") {
                    // Null only beside tool calls: it says nothing otherwise.
                    let content = content.as_deref().or(tool_calls.is_empty().then_some(""));
                    map.serialize_entry("content", &content)?;
                }
                if !tool_calls.is_empty() {
                    map.serialize_entry("tool_calls", &tool_calls.iter().map(WrittenCall).collect::<Vec<_>>())?;
                }
                write_own(&mut map, own)?;
            }
            Message::Tool { call_id, content } => {
                map.serialize_entry("role", "tool")?;
                map.serialize_entry("tool_call_id", call_id)?;
                map.serialize_entry("content", content)?;
            }
        }
        map.end()
    }
}

/// Fields go back as they came, to the letter.
fn write_own<M: SerializeMap>(map: &mut M, own: &OwnFields) -> Result<(), M::Error> {
    for (name, value) in &own.0 {
        if let Ok(value) = serde_json::from_str::<&RawValue>(value) {
            map.serialize_entry(name, value)?;
        }
    }
    Ok(())
}

/// A tool call as it is sent.
struct WrittenCall<'a>(&'a ToolCall);

impl Serialize for WrittenCall<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.0.id)?;
        map.serialize_entry("type", "function")?;
        map.serialize_entry("function", &WrittenFunction(self.0))?;
        write_own(&mut map, &self.0.own)?;
        map.end()
    }
}

struct WrittenFunction<'a>(&'a ToolCall);

impl Serialize for WrittenFunction<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ToolCall { name, arguments, function_own, .. } = self.0;
        // Several servers parse the history's arguments and fail the whole request on broken ones; the tool's message
        // already tells the model what was wrong with them.
        let arguments = json::mended(arguments);
        let sound = matches!(serde_json::from_str(&arguments), Ok(Value::Object(_)));
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        map.serialize_entry("arguments", if sound { &*arguments } else { "{}" })?;
        write_own(&mut map, function_own)?;
        map.end()
    }
}

fn write_tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": { "name": tool.name, "description": tool.description, "parameters": tool.parameters },
    })
}

/// Longest text of a message that is read, in bytes: thoughts may stand before the answer.
const MAX_CONTENT: usize = 4 << 20;
/// Longest arguments of one tool call, and of all calls of a message, in bytes. What is longer is cut, and so is no JSON any
/// more, which the model is told.
const MAX_ARGUMENTS: usize = 64 << 10;
const MAX_ALL_ARGUMENTS: usize = 256 << 10;
/// Longest name or id of a call, in bytes.
const MAX_NAME: usize = 256;
/// Most parts of a content.
const MAX_PARTS: usize = 1024;
/// All fields of a message that only its provider knows, in bytes; those that do not fit are left out.
const MAX_OWN: usize = 256 << 10;

/// Reads the first choice of a reply.
///
/// Liberal: content may be null, a string or a list of parts; arguments may be an object; ids may be missing (then they
/// are `call_1`, `call_2`, … by place); the older `function_call` is a tool call; a missing usage is zero. Fields of the message
/// and its calls that are not known here are kept for the provider.
///
/// An error for a body that is no JSON or is cut, an error in a success body, no choices, or a choice without a message.
fn read_reply(body: &[u8]) -> Result<ChatReply, ReplyError> {
    let text = json::readable(body);
    let mended;
    let reply = match super::one(&text) {
        Ok(reply) => reply,
        // A broken escape must not cost the whole reply. Else it stays as it came: what only the provider knows goes back so.
        Err(error) => {
            mended = json::mended(&text);
            if matches!(mended, Cow::Borrowed(_)) {
                return Err(error);
            }
            super::one(&mended)?
        }
    };
    let choice = reply.get("choices").and_then(First::<&RawValue, 1>::of).and_then(|c| c.items.first().copied());
    let choice = choice.and_then(Fields::of);
    let Some(choice) = choice else {
        return Err(reported(&reply).unwrap_or_else(|| ReplyError::NoChoices(message::printable(text.as_bytes(), 120))));
    };
    let read = choice.object("message").map(|message| read_message(&message));
    let is_empty =
        read.as_ref().is_none_or(|r| r.content.as_deref().is_none_or(str::is_empty) && r.tool_calls.is_empty());
    if is_empty {
        if let Some(error) = choice.get("error") {
            return Err(reported_by(error, None));
        }
        if reply.get("error").is_some() {
            return Err(reported(&reply).expect("an error is reported"));
        }
    }
    let Some(mut read) = read else {
        return Err(ReplyError::Shape(format!(
            "choice 0 has no message in {}",
            message::printable(text.as_bytes(), 120)
        )));
    };
    read.usage = usage(reply.get("usage"));
    read.finish = finish(choice.text("finish_reason", 64).as_deref());
    Ok(read)
}

fn finish(reason: Option<&str>) -> Finish {
    match reason.map(str::to_ascii_lowercase).as_deref() {
        Some("length" | "max_tokens" | "model_length" | "max_output_tokens") => Finish::Truncated,
        Some("content_filter" | "content-filter" | "safety" | "recitation" | "prohibited_content" | "blocklist") => {
            Finish::Filtered
        }
        _ => Finish::Complete,
    }
}

fn read_message(message: &Fields<'_>) -> ChatReply {
    let content = message.get("content").and_then(text_of).or_else(|| message.get("refusal").and_then(text_of));
    let mut room = MAX_ALL_ARGUMENTS;
    let (mut tool_calls, mut dropped_calls) =
        message.get("tool_calls").map(|c| read_calls(c, &mut room)).unwrap_or_default();
    if tool_calls.is_empty() {
        let call = message.get("function_call").and_then(|call| read_call(call, 1, &mut room));
        (tool_calls, dropped_calls) = (call.into_iter().collect(), 0);
    }
    let mut room = MAX_OWN;
    let mut own = own_fields(message, &["role", "content", "refusal", "tool_calls", "function_call"], &mut room);
    // Thoughts among the parts of a content go back with it.
    if let Some(parts) = message.get("content").filter(|c| c.get().starts_with('[') && has_other_parts(c)) {
        keep("content", parts, &mut own, &mut room);
    }
    ChatReply { content, tool_calls, dropped_calls, own, ..ChatReply::default() }
}

/// The fields besides those that are known.
fn own_fields(fields: &Fields<'_>, known: &[&str], room: &mut usize) -> OwnFields {
    let mut own = OwnFields::default();
    for (name, value) in fields.iter().filter(|(name, _)| !known.contains(name)) {
        keep(name, value, &mut own, room);
    }
    own
}

fn keep(name: &str, value: &RawValue, own: &mut OwnFields, room: &mut usize) {
    let size = name.len() + value.get().len();
    // A name with U+0000 could not be stored; nobody has one.
    if size <= *room && !name.contains('\0') {
        *room -= size;
        own.0.insert(name.to_owned(), value.get().to_owned());
    }
}

/// Text of a content: a string, or the text parts of a list joined; `None` when there is none.
fn text_of(content: &RawValue) -> Option<String> {
    if content.get().starts_with('"') {
        return json::text(content, MAX_CONTENT);
    }
    let parts: First<&RawValue, MAX_PARTS> = First::of(content)?;
    let mut texts = String::new();
    let mut any = false;
    for part in parts.items {
        let room = MAX_CONTENT - texts.len();
        let text = if part.get().starts_with('"') {
            json::text(part, room)
        } else {
            Fields::of(part)
                .filter(is_text)
                .and_then(|part| part.any(&["text", "refusal"]).and_then(|t| json::text(t, room)))
        };
        any |= text.is_some();
        texts.push_str(text.as_deref().unwrap_or_default());
    }
    any.then_some(texts)
}

/// A part of another type ("thinking") may have a text too, which is not part of the answer.
fn is_text(part: &Fields<'_>) -> bool {
    matches!(part.text("type", 32).as_deref(), None | Some("text" | "output_text" | "refusal"))
}

fn has_other_parts(content: &RawValue) -> bool {
    let parts = First::<&RawValue, MAX_PARTS>::of(content).unwrap_or_default();
    parts.items.into_iter().filter_map(Fields::of).any(|part| !is_text(&part))
}

/// The calls, and how many there are beyond those that are looked at.
fn read_calls(calls: &RawValue, room: &mut usize) -> (Vec<ToolCall>, usize) {
    if calls.get().starts_with('{') {
        return (read_call(calls, 1, room).into_iter().collect(), 0);
    }
    let calls: First<&RawValue, MAX_CALLS> = First::of(calls).unwrap_or_default();
    let dropped = calls.count - calls.items.len();
    let calls = calls.items.into_iter().zip(1..).filter_map(|(call, number)| read_call(call, number, room));
    (calls.collect(), dropped)
}

/// One call: `{"id", "function": {"name", "arguments"}}`, or name and arguments at the top.
/// `None` only for what is no object: a call without a name is kept, so that the model can be told.
fn read_call(call: &RawValue, number: usize, room: &mut usize) -> Option<ToolCall> {
    let object = Fields::of(call)?;
    let inner = object.object("function");
    let function = inner.as_ref().unwrap_or(&object);
    let id = object.text("id", MAX_NAME).filter(|id| !id.trim().is_empty());
    let most = MAX_ARGUMENTS.min(*room);
    let arguments = match function.any(&["arguments", "parameters"]) {
        None => "{}".to_owned(),
        Some(value) => match json::text(value, most) {
            Some(text) if text.trim().is_empty() => "{}".to_owned(),
            Some(text) => text,
            None => value.get()[..value.get().floor_char_boundary(most)].to_owned(),
        },
    };
    *room -= arguments.len().min(*room);
    let mut own_room = MAX_OWN / MAX_CALLS;
    let known = ["id", "type", "function", "name", "arguments", "parameters"];
    Some(ToolCall {
        id: id.unwrap_or_else(|| format!("call_{number}")),
        name: function.text("name", MAX_NAME).unwrap_or_default(),
        arguments,
        own: own_fields(&object, &known, &mut own_room),
        function_own: inner.as_ref().map(|f| own_fields(f, &known, &mut own_room)).unwrap_or_default(),
    })
}

/// Usage under OpenAI's names or the newer `input_tokens`/`output_tokens`; zero for what is missing or no number.
pub(super) fn usage(usage: Option<&RawValue>) -> Usage {
    let usage = usage.and_then(Fields::of).unwrap_or_default();
    let read = |names: [&str; 2]| {
        let number = usage.any(&names).and_then(|number| number.get().parse::<f64>().ok());
        // Beyond 2^53 nobody counts; a negative number becomes 0.
        number.map_or(0, |n| n.min(9e15) as u64)
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
        ToolCall { id: id.into(), name: name.into(), arguments: arguments.into(), ..ToolCall::default() }
    }

    #[test]
    fn a_broken_escape_costs_no_reply() {
        let body = |text: &str| format!(r#"{{"choices":[{{"message":{{"content":"{text}","x":"\u0000"}}}}]}}"#);
        for (written, text) in [
            (r"It is \u00\u000000.", "It is \u{fffd}\u{fffd}00."),
            (r"It is \u00.", "It is \u{fffd}."),
            (r"It is \ud83d \u0000", "It is \u{fffd} \u{fffd}"),
        ] {
            let reply = OpenAi.reply(body(written).as_bytes()).unwrap();
            assert_eq!(reply.content.as_deref(), Some(text), "{written}");
        }
        assert_eq!(OpenAi.reply(body("x").as_bytes()).unwrap().own.0["x"], r#""\u0000""#, "it goes back as it came");
        assert!(OpenAi.reply(body(r"It is \q").as_bytes()).is_err());
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
                    own: OwnFields::default(),
                },
                Message::Tool { call_id: "c1".into(), content: "t".into() },
                Message::Assistant { content: Some("a".into()), tool_calls: vec![], own: OwnFields::default() },
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
        assert_eq!(read.finish, Finish::Truncated);
        assert_eq!(read.usage, Usage { input_tokens: 3, output_tokens: 4 });
        assert_eq!(reply(json!({"content": "x"})).usage, Usage::default());
        let null =
            OpenAi.reply(br#"{"choices":[{"message":{"content":"x"},"finish_reason":null}],"usage":null}"#).unwrap();
        assert!(null.finish == Finish::Complete && null.usage == Usage::default());
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
