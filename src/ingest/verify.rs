//! `rag.verify`: what of a collection is not as its source is.

use super::statements::{chunks, comparison, failure, trigger};
use crate::error::Result;
use crate::pg::jsonb::Jsonb;
use crate::pg::xact;
use crate::registry::{self, Collection};
use pgrx::spi::quote_literal;

/// A kind of fault.
pub struct Finding {
    /// Its name: one word, or two.
    pub problem: String,
    /// How many rows of the source it concerns, or triggers; `None` where that is not known.
    pub rows: Option<i64>,
    /// One of them.
    pub example: Option<Jsonb>,
    /// More about it.
    pub detail: String,
    /// What to do.
    pub hint: String,
}

/// Looks at everything a collection has. Rows that are queued are left out.
///
/// # Errors
/// 42704 there is no such collection, 42501 the current role does not own it.
pub fn verify(name: &str) -> Result<Vec<Finding>> {
    registry::must_own(&*registry::existing(name)?)?;
    let Some(c) = registry::held(registry::existing(name)?) else {
        return registry::existing(name).map(|_| Vec::new());
    };
    registry::must_own(&c)?;
    let refresh = format!("rag.refresh({})", quote_literal(&c.name));
    let mut findings: Vec<Finding> = trigger::faults(c.id)
        .map(|faults| Finding {
            problem: "capture".into(),
            rows: Some(faults.count),
            example: Some(faults.example),
            detail: faults.state,
            hint: format!("To make the triggers as they should be, and compare everything: SELECT {refresh}."),
        })
        .into_iter()
        .collect();
    let failed = failure::keys(c.id);
    findings.extend(failure::last(c.id).map(|(key, error)| Finding {
        problem: "failed".into(),
        rows: i64::try_from(failed.len()).ok(),
        example: Some(key),
        detail: error,
        hint: format!("See rag.failures; SELECT rag.retry_failures({}) queues them again.", quote_literal(&c.name)),
    }));
    if let Err(e) = c.check() {
        findings.push(Finding {
            problem: "unusable".into(),
            rows: None,
            example: None,
            detail: e.message,
            hint: e.hint,
        });
        return Ok(findings);
    }
    findings.extend(differences(&c, failed, &refresh));
    Ok(findings)
}

fn differences(c: &Collection, failed: Vec<String>, refresh: &str) -> Vec<Finding> {
    let mut left_out = match comparison::pending(c.id) {
        Ok(keys) => keys,
        Err(rows) => {
            return vec![Finding {
                problem: "pending".into(),
                rows: Some(rows),
                example: None,
                detail: "so many rows are queued that the others cannot be told from them".into(),
                hint: format!("Wait with SELECT rag.wait_until_current({}), then try again.", quote_literal(&c.name)),
            }];
        }
    };
    left_out.extend(failed);
    // What has become something else since is no row's key.
    let left_out = chunks::readable_keys(c, left_out);
    match xact::attempt(|| comparison::count_differences(c, left_out)) {
        Ok(found) => found
            .into_iter()
            .map(|d| Finding {
                detail: detail(&d.problem).into(),
                problem: d.problem,
                rows: Some(d.rows),
                example: Some(d.example),
                hint: format!("To have the worker mend it: SELECT {refresh}."),
            })
            .collect(),
        Err(e) => vec![Finding {
            problem: "unreadable".into(),
            rows: None,
            example: None,
            detail: e.message,
            hint: format!(
                "To have each row read by itself, and those that cannot be read put among rag.failures: SELECT {refresh}."
            ),
        }],
    }
}

fn detail(problem: &str) -> &'static str {
    match problem {
        "missing" => "rows with text that have no chunk",
        "stale" => "rows whose chunks were made of another content",
        "incomplete" => "rows that miss some of their chunks",
        "other model" => "rows with chunks that another model embedded",
        "orphaned" => "chunks whose row is gone, or has no text",
        _ => "",
    }
}
