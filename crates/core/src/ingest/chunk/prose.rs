//! The chunker `prose`: stretches of a text as it stands, cut where a reader would cut them.
//!
//! A chunk ends, in this order of preference, between paragraphs (blank lines), between sentences, between words, and only in
//! an unbroken run longer than a whole chunk within one, between two characters as a reader sees them (grapheme clusters). A
//! heading is not left alone at the end of a chunk. The next chunk may begin with the last whole sentences of the one before
//! (the overlap), so that what refers back can be understood.
//!
//! Tokens are counted about once for each sentence and once for each chunk, whatever the text looks like: counting is the
//! expensive part.

use std::ops::Range;

use unicode_segmentation::GraphemeCursor;

use super::{Chunk, ChunkOptions, Chunker, Cut, Pulse};
use crate::text::{Sentence, Sentences};

/// See the module.
pub struct Prose;

/// A sentence of more bytes is cut in parts, each looked at by itself: what is done at a time stays bounded.
const LONGEST_SENTENCE: usize = 64 << 10;
/// Bytes between two pulses.
const PULSE: usize = 64 << 10;

impl Chunker for Prose {
    fn name(&self) -> &'static str {
        "prose"
    }

    /// Every character of the text that is no white space stands in some chunk, in order; NUL is taken as white space, line
    /// ends become `\n`, and long runs of blanks are shortened. Only a single character that alone has more tokens than
    /// allowed makes a longer chunk.
    fn begin(&self, text: &str, options: &ChunkOptions, pulse: Pulse<'_>) -> Box<dyn Cut> {
        let max = options.max_tokens.max(1);
        Box::new(ProseCut {
            text: tidy(text, pulse),
            max,
            overlap: options.overlap_tokens.min(max / 2),
            sentences: Sentences::new(LONGEST_SENTENCE),
            ahead: None,
            previous_end: None,
            units: Vec::new(),
            first: 0,
            fresh: 0,
        })
    }
}

/// A text on its way into chunks.
struct ProseCut {
    text: String,
    max: usize,
    overlap: usize,
    sentences: Sentences,
    /// The sentence after those that are units.
    ahead: Option<Sentence>,
    /// Where the last sentence that became units ended.
    previous_end: Option<usize>,
    /// The units that are needed yet, and some that are read already.
    units: Vec<Unit>,
    /// Units before `fresh` stand in a chunk already; those from `first` on are repeated as overlap.
    first: usize,
    fresh: usize,
}

impl Cut for ProseCut {
    fn next(&mut self, count: &dyn Fn(&str) -> usize) -> Option<Chunk> {
        if !self.reads(self.fresh, count) {
            return None;
        }
        let (begin, end, tokens) = self.fill(count);
        let range = self.units[begin].range.start..self.units[end - 1].range.end;
        let chunk = Chunk { text: self.text[range].to_owned(), tokens };
        self.first = overlap_start(&self.units, begin, end, self.overlap);
        self.fresh = end;
        // Not for each chunk: what stays is moved.
        if self.first * 2 > self.units.len() {
            self.units.drain(..self.first);
            self.fresh -= self.first;
            self.first = 0;
        }
        Some(chunk)
    }
}

/// A stretch that is not divided further.
struct Unit {
    range: Range<usize>,
    tokens: usize,
    /// A paragraph begins with it.
    opens: bool,
    /// A sentence as a whole, which may be repeated as overlap; else a part of a giant one.
    whole: bool,
    /// A paragraph of one short line without a stop.
    heading: bool,
}

/// The text with NULs and odd line ends gone and runs of white space bounded: a blank line between paragraphs, a line break
/// with its indentation, a few blanks.
fn tidy(text: &str, pulse: Pulse<'_>) -> String {
    const INDENTATION: usize = 40;
    const BLANKS: usize = 8;
    let blank = |c: char| c.is_whitespace() || c == '\0';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut pulsed_at = text.len();
    while !rest.is_empty() {
        if pulsed_at - rest.len() >= PULSE {
            pulsed_at = rest.len();
            pulse();
        }
        let window = &rest[..rest.floor_char_boundary(PULSE)];
        let Some(at) = window.find(blank) else {
            out.push_str(window);
            rest = &rest[window.len()..];
            continue;
        };
        out.push_str(&rest[..at]);
        let run_end = at + leading(&rest[at..], blank, pulse);
        let run = &rest[at..run_end];
        let breaks = run.matches('\n').take(2).count().max(run.matches('\r').take(2).count());
        // An indentation that is too long is left out, so it does not matter how long.
        let end = &run[run.ceil_char_boundary(run.len().saturating_sub(2 * INDENTATION))..];
        let tail = end.rsplit(['\n', '\r']).next().unwrap_or_default();
        match breaks {
            0 if run.len() <= BLANKS && !run.contains('\0') => out.push_str(run),
            0 => out.push(' '),
            _ => {
                out.push_str(if breaks > 1 { "\n\n" } else { "\n" });
                if tail.len() <= INDENTATION && !tail.contains('\0') {
                    out.push_str(tail);
                }
            }
        }
        rest = &rest[run_end..];
    }
    out
}

/// How many bytes at the beginning of a text are of characters that `is_one` says yes to.
fn leading(text: &str, is_one: impl Fn(char) -> bool, pulse: Pulse<'_>) -> usize {
    let mut at = 0;
    while at < text.len() {
        let window = &text[at..text.floor_char_boundary(at + PULSE)];
        if let Some(end) = window.find(|c| !is_one(c)) {
            return at + end;
        }
        at += window.len();
        pulse();
    }
    at
}

impl ProseCut {
    /// Whether there is a unit of that place, reading on as far as it takes.
    fn reads(&mut self, place: usize, count: &dyn Fn(&str) -> usize) -> bool {
        while self.units.len() <= place {
            let sentence = match self.ahead.take() {
                Some(sentence) => sentence,
                None => match self.sentences.next(&self.text) {
                    Some(sentence) => sentence,
                    None => return false,
                },
            };
            self.ahead = self.sentences.next(&self.text);
            self.add(&sentence, count);
        }
        true
    }

    /// Makes units of a sentence: one, or several of a giant one.
    fn add(&mut self, sentence: &Sentence, count: &dyn Fn(&str) -> usize) {
        let text = &self.text;
        let range = sentence.range.clone();
        let opens = self.previous_end.is_none_or(|end: usize| text[end..range.start].contains("\n\n"));
        let closes = self.ahead.as_ref().is_none_or(|next| text[range.end..next.range.start].contains("\n\n"));
        self.previous_end = Some(range.end);
        let tokens = count(&text[range.clone()]);
        if tokens > self.max {
            let before = self.units.len();
            divide(text, range, tokens, self.max, count, &mut self.units);
            self.units[before].opens = opens;
        } else {
            let whole = sentence.is_whole;
            let heading = whole && opens && closes && is_heading(&text[range.clone()]);
            self.units.push(Unit { range, tokens, opens, whole, heading });
        }
    }

    /// The next chunk: units from `first` (overlap) or later, to an end after `fresh`, and the tokens of that stretch.
    fn fill(&mut self, count: &dyn Fn(&str) -> usize) -> (usize, usize, usize) {
        let (fresh, max) = (self.fresh, self.max);
        let mut begin = self.first;
        let mut sum: usize = self.units[begin..fresh].iter().map(|u| u.tokens).sum();
        while begin < fresh && sum + self.units[fresh].tokens > max {
            sum -= self.units[begin].tokens;
            begin += 1;
        }
        let mut end = fresh;
        while self.reads(end, count) && (end == fresh || sum + self.units[end].tokens <= max) {
            sum += self.units[end].tokens;
            end += 1;
        }
        let units = &self.units;
        end = good_end(units, begin, fresh, end, max);
        // Tokens of parts need not add up to those of the whole (line breaks, merges over a boundary), so the whole decides.
        loop {
            let tokens = count(&self.text[units[begin].range.start..units[end - 1].range.end]);
            if tokens <= max || end - begin == 1 {
                return (begin, end, tokens);
            }
            let mut excess = tokens - max;
            while excess > 0 && end - begin > 1 {
                let dropped = if end - 1 > fresh {
                    end -= 1;
                    end
                } else {
                    begin += 1;
                    begin - 1
                };
                excess = excess.saturating_sub(units[dropped].tokens.max(1));
            }
        }
    }
}

fn is_heading(line: &str) -> bool {
    line.len() <= 100 && !line.contains('\n') && !line.ends_with(['.', '!', '?', ':', ';', '…', '。', '！', '？', ','])
}

/// Divides a stretch with more than `max` tokens into parts of about a quarter of that, by its mean length of a token, so that
/// each part is counted once; parts that turn out too long are divided again.
fn divide(
    text: &str,
    range: Range<usize>,
    tokens: usize,
    max: usize,
    count: &dyn Fn(&str) -> usize,
    out: &mut Vec<Unit>,
) {
    let target = (max / 4).max(1);
    // In u128: bytes times tokens may be large.
    let step = (range.len() as u128 * target as u128 / tokens.max(1) as u128) as usize;
    let mut start = range.start;
    while start < range.end {
        let end = cut(text, start, range.end, step.max(1));
        let part = start + (text[start..end].len() - text[start..end].trim_start().len())..end;
        let part = part.start..part.start + text[part.clone()].trim_end().len();
        start = end;
        if part.is_empty() {
            continue;
        }
        let tokens = count(&text[part.clone()]);
        if tokens > max && text[part.clone()].chars().nth(1).is_some() {
            divide(text, part, tokens, max, count, out);
        } else {
            out.push(Unit { range: part, tokens, opens: false, whole: false, heading: false });
        }
    }
}

/// Where a part that begins at `start` ends, at most `step` bytes on if a character allows it: behind the last white space of
/// its second half, else between graphemes, else between characters. More than `start`, and less than `end` if the stretch
/// has more than one character.
fn cut(text: &str, start: usize, end: usize, step: usize) -> usize {
    let mut at = start.saturating_add(step).min(end);
    if at == end && step < end - start {
        return end;
    }
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let first_char = text[start..].chars().next().map_or(1, char::len_utf8);
    at = at.max(start + first_char);
    if at >= end {
        return end;
    }
    let mut middle = start + (at - start) / 2;
    while !text.is_char_boundary(middle) {
        middle += 1;
    }
    if let Some(blank) = text[middle..at].rfind(char::is_whitespace) {
        let after = middle + blank + text[middle + blank..].chars().next().map_or(1, char::len_utf8);
        if after > start {
            return after;
        }
    }
    grapheme_boundary(&text[start..end], at - start).map_or(at, |boundary| start + boundary)
}

/// The last grapheme boundary of `piece` at or before `at`, if there is one after its beginning.
fn grapheme_boundary(piece: &str, at: usize) -> Option<usize> {
    let mut cursor = GraphemeCursor::new(at, piece.len(), true);
    let boundary = match cursor.is_boundary(piece, 0) {
        Ok(true) => at,
        Ok(false) => cursor.prev_boundary(piece, 0).ok().flatten()?,
        Err(_) => return None,
    };
    (boundary > 0).then_some(boundary)
}

/// Moves the end of a chunk back to the end of a paragraph if little is lost by it, and never leaves a heading behind.
fn good_end(units: &[Unit], begin: usize, fresh: usize, end: usize, max: usize) -> usize {
    let mut best = end;
    if end < units.len() && !units[end].opens {
        let mut kept: usize = units[begin..end].iter().map(|u| u.tokens).sum();
        for at in (fresh + 1..end).rev() {
            kept -= units[at].tokens;
            if kept * 3 < max * 2 {
                break;
            }
            if units[at].opens {
                best = at;
                break;
            }
        }
    }
    while best < units.len() && best > fresh + 1 && units[best - 1].heading {
        best -= 1;
    }
    best
}

/// The first of the whole sentences at the end of a chunk that together have at most `overlap` tokens.
fn overlap_start(units: &[Unit], begin: usize, end: usize, overlap: usize) -> usize {
    let mut first = end;
    let mut sum = 0;
    while first > begin + 1 && units[first - 1].whole && sum + units[first - 1].tokens <= overlap {
        first -= 1;
        sum += units[first].tokens;
    }
    first
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::ingest::chunk::approximate_tokens;

    type Counter<'a> = &'a dyn Fn(&str) -> usize;

    fn words(text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn chars(text: &str) -> usize {
        text.chars().count()
    }

    fn texts(text: &str, max_tokens: usize, overlap_tokens: usize) -> Vec<String> {
        Prose.split(text, &ChunkOptions { max_tokens, overlap_tokens }, &words).into_iter().map(|c| c.text).collect()
    }

    fn visible(text: &str) -> Vec<char> {
        text.chars().filter(|c| !c.is_whitespace() && *c != '\0').collect()
    }

    /// Every visible character of `text` stands in the chunks, in order: chunks without overlap put together are the text.
    fn assert_complete(text: &str, chunks: &[Chunk]) {
        let together: Vec<char> = chunks.iter().flat_map(|c| visible(&c.text)).collect();
        assert!(together == visible(text), "{chunks:?} of {text:?}");
    }

    /// The same with overlap: each chunk is a stretch that begins at or before where those before it reached.
    fn assert_covered(text: &str, chunks: &[Chunk]) {
        let all = visible(text);
        // Text that repeats itself can be read in several ways, so all places that may have been reached are followed.
        let mut reached = std::collections::BTreeSet::from([0usize]);
        for chunk in chunks {
            let part = visible(&chunk.text);
            assert!(!part.is_empty(), "blank chunk");
            reached = reached
                .iter()
                .flat_map(|&r| (r.saturating_sub(part.len() - 1)..=r).filter(|&s| all[s..].starts_with(&part)))
                .map(|start| start + part.len())
                .collect();
            assert!(!reached.is_empty(), "{:?} is no stretch of {text:?}", chunk.text);
        }
        assert!(reached.contains(&all.len()), "characters are missing from {chunks:?} of {text:?}");
    }

    #[test]
    fn blank_text_has_no_chunks() {
        for blank in ["", " ", "\r\n\r\n", "\0\0", "\u{a0}\u{3000}"] {
            assert!(texts(blank, 10, 2).is_empty(), "{blank:?}");
        }
    }

    #[test]
    fn short_text_is_one_chunk_as_it_stands() {
        assert_eq!(texts("  One.\n\n  Two,\tthree. ", 10, 2), ["One.\n\n  Two,\tthree."]);
    }

    #[test]
    fn a_chunk_ends_between_paragraphs_when_little_is_lost() {
        let text = "A b c d. E f g h.\n\nI j. K l m n o p.";
        assert_eq!(texts(text, 11, 0), ["A b c d. E f g h.", "I j. K l m n o p."]);
    }

    #[test]
    fn a_chunk_ends_between_sentences_when_a_paragraph_is_too_long() {
        assert_eq!(texts("a b c. d e f. g h i. j k.", 7, 0), ["a b c. d e f.", "g h i. j k."]);
    }

    #[test]
    fn a_heading_goes_with_what_follows_it() {
        assert_eq!(texts("a b c d.\n\nHeading\n\ne f g h i.", 7, 0), ["a b c d.", "Heading\n\ne f g h i."]);
    }

    #[test]
    fn overlap_repeats_whole_sentences_and_never_makes_a_chunk_too_long() {
        assert_eq!(texts("A b c. D e. F g h. I j.", 6, 2), ["A b c. D e.", "D e. F g h.", "I j."]);
        // Five tokens of overlap are clamped to half of six, and the sentence that does not fit beside the new one goes.
        assert_eq!(texts("A b c. D e f. G h i j.", 6, 5), ["A b c. D e f.", "G h i j."]);
        assert_eq!(texts("A b. C d. E f. G h.", 4, 99), ["A b. C d.", "C d. E f.", "E f. G h."]);
    }

    #[test]
    fn a_giant_sentence_is_cut_between_words() {
        let text = (0..100).map(|i| format!("w{i}")).collect::<Vec<_>>().join(" ");
        let chunks = Prose.split(&text, &ChunkOptions { max_tokens: 8, overlap_tokens: 2 }, &words);
        assert_complete(&text, &chunks);
        assert!(chunks.iter().all(|c| c.tokens <= 8));
        assert!(chunks.iter().flat_map(|c| c.text.split(' ')).all(|w| w.starts_with('w')), "{chunks:?}");
        assert!(chunks.len() <= 18, "{} chunks for 100 words", chunks.len());
    }

    #[test]
    fn an_unbroken_run_is_cut_between_graphemes() {
        let family = "👨‍👩‍👧‍👦";
        let text = family.repeat(200) + &"e\u{301}".repeat(300);
        let chunks = Prose.split(&text, &ChunkOptions { max_tokens: 20, overlap_tokens: 5 }, &chars);
        assert_complete(&text, &chunks);
        for chunk in &chunks {
            assert!(chunk.tokens <= 20);
            assert!(!chunk.text.starts_with(['\u{301}', '\u{200d}']), "{:?}", chunk.text);
        }
    }

    #[test]
    fn a_single_character_longer_than_a_chunk_stands_alone() {
        let bytes = |text: &str| text.len();
        let chunks = Prose.split("日本a", &ChunkOptions { max_tokens: 1, overlap_tokens: 0 }, &bytes);
        assert_eq!(
            chunks.iter().map(|c| (c.text.as_str(), c.tokens)).collect::<Vec<_>>(),
            [("日", 3), ("本", 3), ("a", 1)]
        );
    }

    #[test]
    fn parts_that_do_not_add_up_are_counted_as_a_whole() {
        // Each blank and line break is a token too, as in byte-level tokenisers.
        let with_blanks = |text: &str| text.split_whitespace().count() + text.matches([' ', '\n']).count();
        let text = "Aa. Bb. Cc.\n\nDd. Ee. Ff. Gg. Hh.";
        let chunks = Prose.split(text, &ChunkOptions { max_tokens: 5, overlap_tokens: 2 }, &with_blanks);
        assert!(chunks.iter().all(|c| c.tokens <= 5 && c.tokens == with_blanks(&c.text)), "{chunks:?}");
        assert_covered(text, &chunks);
    }

    #[test]
    fn line_ends_nuls_and_long_blanks_are_tidied() {
        assert_eq!(texts("a\r\nb\r\n\r\nc\0d\r\r\re", 10, 0), ["a\nb\n\nc d\n\ne"]);
        let wide = format!("a.{}b.{}c.", " ".repeat(5000), "\n".repeat(5000));
        assert_eq!(texts(&wide, 10, 0), ["a. b.\n\nc."]);
    }

    /// SplitMix64: the same texts in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % n as u64) as usize
        }
    }

    #[test]
    fn any_text_is_kept_whole_within_the_limit_and_the_same_each_time() {
        const PARTS: &[&str] = &[
            "word",
            "Word.",
            " ",
            " ",
            " ",
            "\n",
            "\n\n",
            "\r\n",
            "\r\n\r\n",
            "\0",
            "é",
            "e\u{301}",
            "👩‍🚀",
            "🇩🇪",
            "日本。",
            ". ",
            "! ",
            "...",
            "e.g. ",
            "1. ",
            "\t",
            "\u{a0}",
            "x_y=1;",
            "(a)",
            "\"b.\" ",
            "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
            "\u{200b}",
            "�",
        ];
        let bytes = |text: &str| text.len();
        let counters: [(&str, Counter); 4] =
            [("words", &words), ("chars", &chars), ("approximate", &approximate_tokens), ("bytes", &bytes)];
        let mut random = Random(7);
        for case in 0..3000 {
            let text: String = (0..random.below(60)).map(|_| PARTS[random.below(PARTS.len())]).collect();
            let overlap_tokens = if case % 3 == 0 { 0 } else { random.below(40) };
            let o = ChunkOptions { max_tokens: random.below(30), overlap_tokens };
            let (name, count) = counters[case % 4];
            let chunks = Prose.split(&text, &o, count);
            assert_covered(&text, &chunks);
            if overlap_tokens == 0 {
                assert_complete(&text, &chunks);
            }
            assert_eq!(chunks, Prose.split(&text, &o, count));
            for chunk in &chunks {
                let fits = chunk.tokens <= o.max_tokens.max(1) || chunk.text.chars().count() == 1;
                assert!(fits && chunk.tokens == count(&chunk.text), "{name} {o:?} {chunk:?} of {text:?}");
                assert_eq!(chunk.text, chunk.text.trim());
            }
        }
    }

    #[test]
    fn a_megabyte_in_one_line_is_counted_a_few_times_over_not_quadratically() {
        for text in [
            "lorem ipsum dolor ".repeat(60_000),
            "x".repeat(1_000_000),
            ". a".repeat(330_000),
            "........x".repeat(110_000),
            "e\u{301}".repeat(330_000),
            "🇩🇪".repeat(125_000),
            "a. ".repeat(330_000),
            "A.\n".repeat(330_000),
            format!("{}x{}", " ".repeat(500_000), " . a".repeat(125_000)),
        ] {
            let counted = Cell::new(0usize);
            let calls = Cell::new(0usize);
            let count = |t: &str| {
                counted.set(counted.get() + t.len());
                calls.set(calls.get() + 1);
                approximate_tokens(t)
            };
            let chunks = Prose.split(&text, &ChunkOptions { max_tokens: 400, overlap_tokens: 0 }, &count);
            let name: String = text.trim_start().chars().take(12).collect();
            assert_complete(&text, &chunks);
            assert!(chunks.len() > 100, "{name}: {} chunks", chunks.len());
            assert!(
                counted.get() <= 5 * text.len(),
                "{name}: {} bytes counted in {} calls",
                counted.get(),
                calls.get()
            );
        }
    }

    #[test]
    fn what_is_done_for_one_chunk_is_bounded_whatever_the_text_looks_like() {
        for text in [
            "x".repeat(3_000_000),
            "lorem ipsum dolor ".repeat(170_000),
            "a.b".repeat(1_000_000),
            format!("{}\n\n{}", "word. ".repeat(250_000), "日本".repeat(250_000)),
            " ".repeat(3_000_000),
            "\u{301}".repeat(1_500_000),
        ] {
            let counted = Cell::new(0usize);
            let pulses = Cell::new(0usize);
            let count = |t: &str| {
                counted.set(counted.get() + t.len());
                approximate_tokens(t)
            };
            let options = ChunkOptions { max_tokens: 400, overlap_tokens: 50 };
            let mut cut = Prose.begin(&text, &options, &|| pulses.set(pulses.get() + 1));
            assert_eq!(counted.get(), 0, "nothing is counted before a chunk is asked for");
            assert!(text.starts_with(' ') || pulses.get() >= text.len() / (200 << 10), "{} pulses", pulses.get());
            while cut.next(&count).is_some() {
                // Of a sentence that does not end, a part of 64 kB or twice that is looked at, itself and its pieces.
                assert!(counted.get() <= 4 * (128 << 10), "{} bytes counted for one chunk", counted.get());
                counted.set(0);
            }
        }
    }

    #[test]
    fn a_sentence_without_an_end_is_cut_in_parts_and_its_last_words_are_not_repeated() {
        let text = "lorem ipsum ".repeat(20_000) + "dolor. The end.";
        let chunks = Prose.split(&text, &ChunkOptions { max_tokens: 100, overlap_tokens: 40 }, &words);
        assert!(chunks.len() > 300);
        // Overlap is made of whole sentences: here there are none before the last one.
        let together: usize = chunks.iter().map(|c| words(&c.text)).sum();
        assert_eq!(together, words(&text));
    }
}
