//! A connection whose answers and errors are easy to check.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::error::DbError;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, SimpleQueryMessage};

use crate::wait::wait_for;

/// A row as text; `None` is NULL.
pub type TextRow = Vec<Option<String>>;

/// An open connection.
pub struct Session {
    client: Client,
    /// The backend's process id.
    pub pid: i32,
    notices: Arc<Mutex<Vec<DbError>>>,
    driver: JoinHandle<()>,
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    /// Connects.
    pub async fn open(config: &Config) -> Result<Session, tokio_postgres::Error> {
        let (client, mut connection) = config.connect(NoTls).await?;
        let notices: Arc<Mutex<Vec<DbError>>> = Arc::default();
        let heard = Arc::clone(&notices);
        let driver = tokio::spawn(async move {
            let next = |connection: &mut tokio_postgres::Connection<_, _>, context: &mut std::task::Context<'_>| {
                connection.poll_message(context)
            };
            while let Some(Ok(message)) = std::future::poll_fn(|context| next(&mut connection, context)).await {
                if let AsyncMessage::Notice(notice) = message {
                    heard.lock().expect("no panic while notices are locked").push(notice);
                }
            }
        });
        let mut session = Session { client, pid: 0, notices, driver };
        let rows = session.client.simple_query("SELECT pg_backend_pid()").await?;
        session.pid = text_rows(rows)[0][0].as_deref().and_then(|pid| pid.parse().ok()).expect("a process id");
        Ok(session)
    }

    /// Runs statements and gives the rows of all of them as text.
    pub async fn try_rows(&self, sql: &str) -> Result<Vec<TextRow>, tokio_postgres::Error> {
        Ok(text_rows(self.client.simple_query(sql).await?))
    }

    /// Runs statements that must succeed and gives their rows as text.
    pub async fn rows(&self, sql: &str) -> Vec<TextRow> {
        match self.try_rows(sql).await {
            Ok(rows) => rows,
            Err(error) => panic!("{sql}\n{}", describe(&error)),
        }
    }

    /// The only column of every row; NULL as `∅`.
    pub async fn column(&self, sql: &str) -> Vec<String> {
        let rows = self.rows(sql).await;
        rows.into_iter().map(|row| row.into_iter().next().flatten().unwrap_or_else(|| "∅".into())).collect()
    }

    /// The first column of the only row; `None` is NULL.
    pub async fn maybe(&self, sql: &str) -> Option<String> {
        let mut rows = self.rows(sql).await;
        assert_eq!(rows.len(), 1, "one row expected of {sql}, got {rows:?}");
        rows.remove(0).remove(0)
    }

    /// The first column of the only row, which is not NULL.
    pub async fn value(&self, sql: &str) -> String {
        self.maybe(sql).await.unwrap_or_else(|| panic!("NULL from {sql}"))
    }

    /// The first column of the only row as a number.
    pub async fn number(&self, sql: &str) -> i64 {
        let value = self.value(sql).await;
        value.parse().unwrap_or_else(|_| panic!("{value} is not a number, from {sql}"))
    }

    /// Runs statements that must succeed.
    pub async fn run(&self, sql: &str) {
        self.rows(sql).await;
    }

    /// Runs statements of which one must fail with this SQLSTATE (or one of several: `08001|08006`); gives the error.
    pub async fn error(&self, sql: &str, sqlstate: &str) -> DbError {
        match self.try_rows(sql).await {
            Ok(rows) => panic!("{sql}\nshould fail with {sqlstate}, gives {rows:?}"),
            Err(error) => check_error(&error, sql, sqlstate),
        }
    }

    /// Like [`Session::error`], and the error must have a hint: those of the extension always have.
    pub async fn refusal(&self, sql: &str, sqlstate: &str) -> DbError {
        let error = self.error(sql, sqlstate).await;
        assert!(error.hint().is_some_and(|h| !h.is_empty()), "{sql}\nfails without a HINT: {}", error.message());
        error
    }

    /// Notices so far.
    pub fn notices(&self) -> Vec<DbError> {
        self.notices.lock().expect("no panic while notices are locked").clone()
    }

    /// Polls a query until its first column is `t` (true); panics, naming `what`, after `limit`.
    pub async fn wait_until(&self, what: &str, limit: Duration, sql: &str) {
        wait_for(what, limit, || async { (self.value(sql).await == "t").then_some(()) }).await;
    }
}

/// Checks that an error came from the server with this SQLSTATE.
pub fn check_error(error: &tokio_postgres::Error, sql: &str, sqlstate: &str) -> DbError {
    let Some(found) = error.as_db_error() else { panic!("{sql}\nno error of the server: {}", describe(error)) };
    let expected = sqlstate.split('|').any(|code| code == found.code().code());
    assert!(expected, "{sql}\nshould fail with {sqlstate}, fails with {}", describe(error));
    found.clone()
}

/// An error with everything the server said.
pub fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(e) => format!(
            "{} {}: {}\nDETAIL: {}\nHINT: {}\nCONTEXT: {}",
            e.severity(),
            e.code().code(),
            e.message(),
            e.detail().unwrap_or("-"),
            e.hint().unwrap_or("-"),
            e.where_().unwrap_or("-")
        ),
        None => format!("{error:?}"),
    }
}

fn text_rows(messages: Vec<SimpleQueryMessage>) -> Vec<TextRow> {
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect()),
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}
