//! Citation markers in a model's text: `[1]`, `[1, 2]`, `[1][2]`, `[1-3]`, `【1】`, `【1†source】`.
//!
//! Code is left alone: nothing inside backticks is a marker, nor is a bracket that follows a name (`arr[1]`), nor one that
//! follows such a bracket (`arr[1][2]`).

use std::ops::Range;

/// A marker and the numbers it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// Where it stands.
    pub range: Range<usize>,
    /// The numbers, in its order, without repetitions.
    pub numbers: Vec<u32>,
}

/// The markers of `text`, in order.
pub fn find(text: &str) -> Vec<Marker> {
    let mut code = code_spans(text).into_iter().peekable();
    let mut markers: Vec<Marker> = Vec::new();
    // End of the last bracket with numbers that was taken for code.
    let mut subscript_end = usize::MAX;
    let mut at = 0;
    while let Some(offset) = text[at..].find(['[', '【']) {
        let start = at + offset;
        // Spans come in order, as brackets do.
        while code.next_if(|span| span.end <= start).is_some() {}
        if let Some(span) = code.peek().filter(|span| span.contains(&start)) {
            at = span.end;
            continue;
        }
        let Some((length, numbers)) = bracket(&text[start..]) else {
            at = start + text[start..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        at = start + length;
        if follows_name(&text[..start]) || subscript_end == start {
            subscript_end = at;
        } else {
            markers.push(Marker { range: start..at, numbers });
        }
    }
    markers
}

/// `text` without its markers and the blanks before them.
pub fn without_markers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for marker in find(text) {
        out.push_str(&text[at..marker.range.start]);
        at = marker.range.end;
        drop_blank(&mut out, &text[at..]);
    }
    out.push_str(&text[at..]);
    out
}

/// Takes the blank off the end of `out` that stood before a marker which is left out, unless a word follows at once.
pub fn drop_blank(out: &mut String, rest: &str) {
    if rest.chars().next().is_none_or(|c| c.is_whitespace() || ".,;:!?)".contains(c)) {
        out.truncate(out.trim_end_matches([' ', '\u{a0}']).len());
    }
}

/// Whether the text before a bracket ends in a name, which makes the bracket a subscript. Ideographs are no names:
/// scripts without blanks put their markers right behind a word.
fn follows_name(before: &str) -> bool {
    before.chars().next_back().is_some_and(|c| c == '_' || (c.is_alphanumeric() && (c as u32) < 0x2e80))
}

/// Length and numbers of the bracket that `text` begins with, if it holds nothing but numbers.
fn bracket(text: &str) -> Option<(usize, Vec<u32>)> {
    let (open, close) = if text.starts_with('[') { ('[', ']') } else { ('【', '】') };
    // A marker is short; what is longer is no marker, and the search for its end stays short.
    let window_end = text.char_indices().nth(60).map_or(text.len(), |(i, _)| i);
    let inner_end = text[..window_end].find(close)?;
    let mut inner = &text[open.len_utf8()..inner_end];
    if let Some(dagger) = inner.find('†') {
        inner = &inner[..dagger];
    }
    let mut numbers = Vec::new();
    for part in inner.split([',', ';', '，', '、']) {
        let part = part.trim().trim_start_matches('^');
        let (from, to) = match part.split_once(['-', '–']) {
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(part)?, number(part)?),
        };
        if to < from || to - from > 20 {
            return None;
        }
        for n in from..=to {
            if !numbers.contains(&n) {
                numbers.push(n);
            }
        }
    }
    Some((inner_end + close.len_utf8(), numbers))
}

fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Byte ranges of code in Markdown: between equal runs of backticks, and fenced blocks, which an end of the text closes too.
fn code_spans(text: &str) -> Vec<Range<usize>> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while let Some(offset) = text[at..].find('`') {
        let start = at + offset;
        let length = text[start..].bytes().take_while(|&b| b == b'`').count();
        runs.push((start, length));
        at = start + length;
    }
    let mut spans = Vec::new();
    let mut i = 0;
    // Runs of a length that have no partner from some place on; without this, unclosed runs cost their square.
    let mut unclosed = std::collections::HashSet::new();
    while i < runs.len() {
        let (start, length) = runs[i];
        let fence = length >= 3 && begins_line(&text[..start]);
        let partner = if unclosed.contains(&length) {
            None
        } else {
            runs[i + 1..].iter().position(|&(_, n)| if fence { n >= length } else { n == length })
        };
        match partner {
            Some(offset) => {
                let (end, end_length) = runs[i + 1 + offset];
                spans.push(start..end + end_length);
                i += offset + 2;
            }
            None if fence => {
                spans.push(start..text.len());
                break;
            }
            None => {
                unclosed.insert(length);
                i += 1;
            }
        }
    }
    spans
}

/// Whether nothing but blanks stands between the last line break of `before` and its end.
fn begins_line(before: &str) -> bool {
    let rest = before.trim_end_matches(|c: char| c != '\n' && c.is_whitespace());
    rest.is_empty() || rest.ends_with('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Vec<Vec<u32>> {
        find(text).into_iter().map(|m| m.numbers).collect()
    }

    #[test]
    fn markers_are_read_in_their_usual_forms() {
        assert_eq!(numbers("A [1]. B [2, 3] C[x] (see [4]) \"d\"[5]"), [vec![1], vec![2, 3], vec![4], vec![5]]);
        assert_eq!(
            numbers("[1][2] 【3】 【4†source】 [ 5 ] [^6] [7;8] [1-3] [2–3] [1, 1]"),
            [vec![1], vec![2], vec![3], vec![4], vec![5], vec![6], vec![7, 8], vec![1, 2, 3], vec![2, 3], vec![1]]
        );
        assert_eq!(numbers("答案是巴黎[1]。"), [vec![1]]);
    }

    #[test]
    fn code_and_other_brackets_are_left_alone() {
        for text in [
            "arr[1]",
            "arr[1][2]",
            "a_[0]",
            "ARRAY[1,2]",
            "`x [1]`",
            "``a ` [1]``",
            "```\nSELECT [1];\n```",
            "```sql\n[1]",
            "[]",
            "[a]",
            "[1.5]",
            "[12345]",
            "[-1]",
            "[3-1]",
            "[1-999]",
            "[1",
            "1]",
            "[1,]",
            "[]]",
            "[[",
            "$1[1]",
        ] {
            assert_eq!(numbers(text), Vec::<Vec<u32>>::new(), "{text}");
        }
        assert_eq!(numbers("a `` stray [1] and `code [2]` [3]"), [vec![1], vec![3]]);
        assert_eq!(numbers("a ` stray tick [1]"), [vec![1]]);
        assert_eq!(numbers("```\n[1]\n```\n[2]"), [vec![2]]);
    }

    #[test]
    fn long_texts_of_brackets_and_ticks_take_no_square_of_time() {
        for text in [
            "[".repeat(500_000),
            "`a ``b ".repeat(50_000) + "`",
            "[1]".repeat(100_000),
            "`a` [1] ".repeat(30_000),
            "a``` ".repeat(50_000),
        ] {
            find(&text);
        }
        let many: String = (1..700).map(|n| "`".repeat(n) + "a").collect();
        assert!(find(&many).is_empty());
    }
}
