//! What a failed request means.

/// The kinds of failure a caller treats differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The key is missing, wrong or not allowed to do this (401, 403, 407).
    Auth,
    /// Too many requests for now (429).
    RateLimited,
    /// The provider refuses this request as it stands (other 4xx).
    BadRequest,
    /// No such model or path (404, 410).
    NotFound,
    /// The request is bigger than the provider takes (413, or words to that effect): a smaller batch may pass.
    TooLarge,
    /// The provider is down or overloaded for now (5xx, 408, 409, 425).
    Unavailable,
    /// The reply is not what the protocol says (redirects, garbage, unimplemented).
    Protocol,
}

impl FailureKind {
    /// True when the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, FailureKind::RateLimited | FailureKind::Unavailable)
    }
}

/// The kind of failure an HTTP status stands for. Call it only for a status that is not a success;
/// a success with an unusable body is [`FailureKind::Protocol`], which is also what 1xx–3xx give.
pub fn classify(status: u16) -> FailureKind {
    match status {
        401 | 403 | 407 => FailureKind::Auth,
        404 | 410 => FailureKind::NotFound,
        408 | 409 | 425 => FailureKind::Unavailable,
        413 => FailureKind::TooLarge,
        429 => FailureKind::RateLimited,
        400..=499 => FailureKind::BadRequest,
        // "Not implemented" and "version not supported" stay so however often they are asked.
        501 | 505 => FailureKind::Protocol,
        500..=599 => FailureKind::Unavailable,
        _ => FailureKind::Protocol,
    }
}

/// The kind of failure that a status and the provider's words about it stand for: many providers say with 400 that there are too
/// many texts, or that they are too long.
pub fn classify_words(status: u16, words: &str) -> FailureKind {
    match classify(status) {
        FailureKind::BadRequest if says_too_large(words) => FailureKind::TooLarge,
        // llama.cpp's server says so with 500.
        FailureKind::Unavailable if words.to_ascii_lowercase().contains("too large to process") => {
            FailureKind::TooLarge
        }
        kind => kind,
    }
}

/// Whether the same request may be sent again at once while somebody waits: what the provider asks for (429), or a failure of
/// its own. Other transient statuses are left to those who have time.
pub fn may_send_again(status: u16) -> bool {
    status == 408 || classify(status) == FailureKind::RateLimited || status >= 500 && classify(status).is_transient()
}

/// Words by which providers say that a request is too large.
fn says_too_large(words: &str) -> bool {
    const SAYINGS: &[&str] = &[
        "context length",
        "context_length",
        "context window",
        "context size",
        "maximum context",
        "max_model_len",
        "too many inputs",
        "too many input",
        "too many texts",
        "too many tokens",
        "too many items",
        "too many total",
        "token limit",
        "tokens limit",
        "max tokens per",
        "max_tokens_per",
        "maximum tokens",
        "maximum number of",
        "maximum allowed batch",
        "maximum batch",
        "max batch",
        "batch size",
        "batch_size",
        "array too long",
        "array_above_max_length",
        "string_above_max_length",
        "reduce the length",
        "reduce your prompt",
        "too large",
        "too long",
        "exceeds the limit",
        "exceeds the maximum",
        "exceed the maximum",
        "exceed the limit",
        "should not be larger than",
        "larger than the maximum",
    ];
    let lower = words.to_ascii_lowercase();
    SAYINGS.iter().any(|saying| lower.contains(saying))
}

/// The HTTP status that an error inside a reply stands for, by its code or its word for it.
pub fn status_named(word: &str) -> Option<u16> {
    let word = word.trim();
    if let Ok(number) = word.parse::<f64>() {
        return (400.0..600.0).contains(&number).then_some(number as u16);
    }
    let plain: String =
        word.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).take(64).collect();
    Some(match plain.as_str() {
        "resourceexhausted"
        | "ratelimit"
        | "ratelimited"
        | "ratelimitexceeded"
        | "ratelimiterror"
        | "ratelimitreached"
        | "toomanyrequests"
        | "insufficientquota"
        | "quotaexceeded"
        | "throttlingexception"
        | "throttled"
        | "requestlimitexceeded" => 429,
        "unauthenticated" | "unauthorized" | "authenticationerror" | "invalidapikey" | "invalidauthentication" => 401,
        "permissiondenied" | "permissionerror" | "forbidden" | "accessdenied" => 403,
        "paymentrequired" | "billingerror" => 402,
        "notfound" | "notfounderror" | "modelnotfound" | "modelnotfounderror" => 404,
        "timeout" | "timeouterror" | "requesttimeout" => 408,
        "aborted" | "conflict" => 409,
        "requesttoolarge" | "payloadtoolarge" | "contextlengthexceeded" => 413,
        "invalidargument"
        | "failedprecondition"
        | "outofrange"
        | "badrequest"
        | "badrequesterror"
        | "invalidrequest"
        | "invalidrequesterror"
        | "validationerror"
        | "unprocessableentity" => 400,
        "unavailable"
        | "serviceunavailable"
        | "overloaded"
        | "overloadederror"
        | "modeloverloaded"
        | "engineoverloaded"
        | "serviceunavailableerror" => 503,
        "deadlineexceeded" | "gatewaytimeout" => 504,
        "badgateway" => 502,
        "unimplemented" | "notimplemented" => 501,
        "internal" | "internalerror" | "internalservererror" | "servererror" | "apierror" => 500,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_a_request_that_is_too_large() {
        for (status, words, kind) in [
            (413, "", FailureKind::TooLarge),
            (400, "maximum context length is 8192 tokens, however you requested 9000 tokens", FailureKind::TooLarge),
            (400, "Value error, batch size is invalid, it should not be larger than 10.", FailureKind::TooLarge),
            (422, "batch size 64 > maximum allowed batch size 32", FailureKind::TooLarge),
            (400, "Too many inputs. The max number of inputs is 96.", FailureKind::TooLarge),
            (500, "input is too large to process. increase the physical batch size", FailureKind::TooLarge),
            (400, "no such parameter", FailureKind::BadRequest),
            (401, "the key is too long", FailureKind::Auth),
            (500, "the queue is too long", FailureKind::Unavailable),
        ] {
            assert_eq!(classify_words(status, words), kind, "{status} {words}");
        }
    }

    #[test]
    fn codes_and_words_name_a_status() {
        for (word, status) in [
            ("429", Some(429)),
            (" 503 ", Some(503)),
            ("200", None),
            ("70000", None),
            ("RESOURCE_EXHAUSTED", Some(429)),
            ("rate_limit_exceeded", Some(429)),
            ("Rate limit exceeded", Some(429)),
            ("invalid_api_key", Some(401)),
            ("UNAVAILABLE", Some(503)),
            ("overloaded_error", Some(503)),
            ("context_length_exceeded", Some(413)),
            ("server_error", Some(500)),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(status_named(word), status, "{word}");
        }
    }

    #[test]
    fn what_may_be_sent_again_at_once() {
        let again: Vec<u16> = (300..600).filter(|status| may_send_again(*status)).collect();
        assert!([408, 429, 500, 502, 503, 529].iter().all(|status| again.contains(status)), "{again:?}");
        assert!([302, 400, 401, 409, 413, 425, 501, 505].iter().all(|status| !again.contains(status)), "{again:?}");
    }

    #[test]
    fn statuses_map_to_what_the_caller_does_about_them() {
        for (status, kind, transient) in [
            (200, FailureKind::Protocol, false),
            (302, FailureKind::Protocol, false),
            (400, FailureKind::BadRequest, false),
            (401, FailureKind::Auth, false),
            (403, FailureKind::Auth, false),
            (404, FailureKind::NotFound, false),
            (408, FailureKind::Unavailable, true),
            (413, FailureKind::TooLarge, false),
            (422, FailureKind::BadRequest, false),
            (429, FailureKind::RateLimited, true),
            (500, FailureKind::Unavailable, true),
            (501, FailureKind::Protocol, false),
            (503, FailureKind::Unavailable, true),
            (529, FailureKind::Unavailable, true),
            (999, FailureKind::Protocol, false),
        ] {
            assert_eq!(classify(status), kind, "status {status}");
            assert_eq!(classify(status).is_transient(), transient, "status {status}");
        }
    }
}
