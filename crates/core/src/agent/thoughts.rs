//! Taking out what a model thought before it answered.

/// How thoughts begin and end.
const TAGS: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[think]", "[/think]"),
    ("◁think▷", "◁/think▷"),
];
/// What stands before the answer where thoughts have a channel of their own.
const FINAL_CHANNEL: &str = "<|channel|>final<|message|>";
const CHANNEL: &str = "<|channel|>";

/// `text` without thoughts, trimmed: between their tags, before an end without a beginning, behind a beginning without an end. A
/// tag in backticks is spoken about and no tag.
pub(super) fn without(text: &str) -> String {
    let text = match text.rsplit_once(FINAL_CHANNEL) {
        Some((_, answer)) => answer.split("<|").next().unwrap_or_default(),
        None => match text.split_once(CHANNEL) {
            Some((before, _)) => before,
            None => text,
        },
    };
    let mut out = String::with_capacity(text.len());
    let mut inside: Option<&str> = None;
    let (mut at, mut from) = (0, 0);
    while let Some(offset) = text[at..].find(['<', '[', '◁']) {
        let start = at + offset;
        let Some((close, length, is_close)) = tag(text, start) else {
            at = start + text[start..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        at = start + length;
        match inside {
            // Another kind of tag, or another beginning, is a part of the thought.
            Some(open) if open != close || !is_close => continue,
            Some(_) => inside = None,
            None if is_close => out.clear(),
            None => {
                out.push_str(&text[from..start]);
                inside = Some(close);
            }
        }
        from = at;
    }
    if inside.is_none() {
        out.push_str(&text[from..]);
    }
    out.trim().to_owned()
}

/// The tag at `start`: the end it has or is, its length, and whether it is the end.
fn tag(text: &str, start: usize) -> Option<(&'static str, usize, bool)> {
    let rest = &text[start..];
    let is = |tag: &str| rest.get(..tag.len()).is_some_and(|head| head.eq_ignore_ascii_case(tag));
    let (close, length, is_close) = TAGS.iter().find_map(|(open, close)| {
        if is(open) { Some((*close, open.len(), false)) } else { is(close).then_some((*close, close.len(), true)) }
    })?;
    let spoken_about = text[..start].ends_with('`') && text[start + length..].starts_with('`');
    (!spoken_about).then_some((close, length, is_close))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_taken_out_wherever_they_stand() {
        for (text, answer) in [
            ("It is.", "It is."),
            (" <think>Is it [1]?</think>\n\nIt is. ", "It is."),
            ("Okay, passage 1 says so.\n</think>\n\nIt is.", "It is."),
            ("a</think>b</think>It is.", "It is."),
            ("<think>never ends", ""),
            ("It is.\n<think>or is it", "It is."),
            ("<THINK>x</Think>It is.", "It is."),
            ("<think>a <think> b</think>It is.", "It is."),
            ("<think>a <reasoning> b</think>It is.", "It is."),
            ("It <think>x</think>is.", "It is."),
            ("[THINK]x[/THINK]It is [1].", "It is [1]."),
            ("◁think▷x◁/think▷It is.", "It is."),
            ("<thinking>x</thinking>It is.", "It is."),
            ("Put thoughts between `<think>` and `</think>`.", "Put thoughts between `<think>` and `</think>`."),
            ("<think>`</think>` ends it</think>It is.", "It is."),
            (
                "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>It is.<|return|>",
                "It is.",
            ),
            ("<|channel|>analysis<|message|>hm", ""),
            ("if a < b [1]", "if a < b [1]"),
            ("</think>", ""),
            ("", ""),
        ] {
            assert_eq!(without(text), answer, "{text}");
        }
    }
}
