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
    /// The request is bigger than the provider takes (413): a smaller batch may pass.
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

#[cfg(test)]
mod tests {
    use super::*;

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
