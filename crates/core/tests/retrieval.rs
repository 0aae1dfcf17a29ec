//! What holds for any query, text, filter and vocabulary.

mod common;

use common::config;
use proptest::prelude::*;
use ragent_core::retrieval::QueryKind;
use ragent_core::retrieval::diversity::mmr;
use ragent_core::retrieval::filter::{Column, ColumnType, MAX_SIZE, parse};
use ragent_core::retrieval::measures::{mrr, ndcg, precision_at_k, recall_at_k};
use ragent_core::retrieval::phrase::{Phrase, phrases};
use ragent_core::retrieval::spelling::{alternatives, most_edits};
use ragent_core::retrieval::terms::{EXACT_MARK, Terms, WORD_MARK};
use serde_json::{Value, json};

/// Text of what identifiers and quotations are made of, and of others.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z0-9äЖ日_.@:/+-]{1,12}",
        Just(" ".to_owned()),
        Just("\"".to_owned()),
        Just("“".to_owned()),
        Just("v1.2".to_owned()),
        "\\PC{0,8}",
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

fn columns() -> Vec<Column> {
    [
        ("a", ColumnType::Text),
        ("b", ColumnType::Integer),
        ("c", ColumnType::Array(Box::new(ColumnType::Text))),
        ("d", ColumnType::Json),
        ("e", ColumnType::TimestampTz),
    ]
    .map(|(name, column_type)| Column { name: name.into(), column_type })
    .into()
}

/// JSON whose members often are those of a filter.
fn filter() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
        Just(json!("2024-01-31T12:30Z")),
    ];
    let names = prop::sample::select(vec![
        "a", "b", "c", "d", "e", "f", "and", "or", "not", "=", "<", "in", "contains", "is_null",
    ]);
    leaf.prop_recursive(5, 48, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().map(|(n, v)| (n.to_owned(), v)).collect())),
        ]
    })
}

/// Edits between two words: optimal string alignment, the whole table.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let other = usize::from(a[i - 1] != b[j - 1]);
                let mut least = (table[i - 1][j] + 1).min(table[i][j - 1] + 1).min(table[i - 1][j - 1] + other);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(table[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    table[a.len()][b.len()]
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn any_text_has_terms_and_keeps_its_length(text in text()) {
        let terms = Terms::of(&text, &|| ());
        prop_assert_eq!(terms.text.len(), text.len());
        prop_assert!(terms.exact.keys().all(|t| t.starts_with(EXACT_MARK) && t.len() > 1));
        prop_assert!(terms.words.iter().all(|t| t.starts_with(WORD_MARK) && t.len() > 1));
        // What a text has as a whole, a query of the same text asks for.
        for exact in terms.exact.keys().filter(|t| t.is_ascii()) {
            let again = Terms::of(&exact[1..], &|| ());
            prop_assert!(again.exact.contains_key(exact), "{} of {}", exact, text);
        }
    }

    #[test]
    fn any_query_has_a_kind_and_its_phrases_are_in_it(text in text()) {
        let weight = QueryKind::of(&text).vector_weight();
        prop_assert!((0.0..=1.0).contains(&weight));
        for phrase in phrases(&text) {
            prop_assert!(Phrase::new(phrase).is_in(&text));
        }
    }

    #[test]
    fn any_json_is_a_filter_within_its_bounds_or_an_error_with_a_hint(json in filter()) {
        match parse(&json.to_string(), &columns()) {
            Ok(filter) => prop_assert!(filter.tests().len() <= MAX_SIZE && json.is_object()),
            Err(error) => {
                prop_assert!(!error.hint().is_empty() && error.to_string().chars().count() < 300, "{}", error);
            }
        }
    }

    #[test]
    fn the_nearest_words_are_those_that_comparing_with_each_finds(
        words in prop::collection::btree_set("[a-cä]{3,9}", 0..60), word in "[a-cä]{4,9}",
    ) {
        let sorted: Vec<&str> = words.iter().map(String::as_str).collect();
        let length = word.chars().count();
        let near = |w: &&&str| w.chars().next() == word.chars().next() && edits(&word, w) <= most_edits(length);
        let mut expected: Vec<(usize, &str)> = sorted.iter().filter(near).map(|w| (edits(&word, w), *w)).collect();
        if expected.iter().any(|(edits, _)| *edits <= 1) {
            expected.retain(|(edits, _)| *edits <= 1);
        }
        expected.sort();
        let found = alternatives(&word, 1000, &mut sorted.as_slice());
        let found: Vec<(usize, &str)> = found.iter().map(|a| (a.edits, a.word.as_str())).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn measures_are_parts_of_the_best_there_is(ranking in prop::collection::vec(0u8..20, 0..30), grades in prop::collection::hash_map(0u8..20, -1i32..5, 0..20), k in 1usize..15) {
        let has_relevant = grades.values().any(|g| *g > 0);
        for measured in [ndcg(&ranking, &grades, k), recall_at_k(&ranking, &grades, k), precision_at_k(&ranking, &grades, k), mrr(&ranking, &grades)] {
            prop_assert_eq!(measured.is_some(), has_relevant);
            prop_assert!(measured.is_none_or(|m| (0.0..=1.0 + 1e-12).contains(&m)), "{:?}", measured);
        }
        let mut ideal: Vec<u8> = grades.keys().copied().collect();
        ideal.sort_by_key(|key| -grades[key]);
        prop_assert!(ndcg(&ideal, &grades, k).is_none_or(|best| (best - 1.0).abs() < 1e-12));
    }

    #[test]
    fn what_is_chosen_for_diversity_is_chosen_once(relevance in prop::collection::vec(0.0f64..1.0, 0..20), k in 0usize..25, diversity in 0.0f64..1.0) {
        let mut chosen = mmr(&relevance, k, diversity, |a, b| 1.0 / (1.0 + a.abs_diff(b) as f64));
        prop_assert_eq!(chosen.len(), k.min(relevance.len()));
        prop_assert!(chosen.first().is_none_or(|first| relevance.iter().all(|r| *r <= relevance[*first])));
        chosen.sort_unstable();
        chosen.dedup();
        prop_assert_eq!(chosen.len(), k.min(relevance.len()));
    }
}
