//! An HTTP server on this machine that serves files, or does what servers do on bad days.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// How a path is answered.
#[derive(Clone)]
pub enum Reply {
    Bytes(Vec<u8>),
    /// Another status, with a body.
    Status(u16, &'static str),
    /// Status 200, whatever was asked for: a page.
    Page {
        is_said: bool,
    },
    /// Half of the bytes that the header promises.
    Truncated(Vec<u8>),
    /// A header that promises more bytes than may come.
    Endless,
    /// Some bytes, and then nothing for as long as the test runs.
    Stalled,
    Redirect(String),
}

struct State {
    replies: HashMap<String, Reply>,
    /// The first lines of the requests.
    requests: Vec<String>,
}

/// Serves until the test ends.
pub struct Server {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let state = Arc::new(Mutex::new(State { replies: HashMap::new(), requests: Vec::new() }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Server { port, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it has the lock")
    }

    pub fn set(&self, path: &str, reply: Reply) {
        self.state().replies.insert(path.to_owned(), reply);
    }

    pub fn address(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The same server under another name, which makes it another place.
    pub fn other_address(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.port)
    }

    /// The first lines of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(stream.try_clone().expect("cloned")).lines();
    let Some(Ok(first)) = lines.next() else { return };
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let reply = {
        let mut state = state.lock().expect("no thread panics while it has the lock");
        state.requests.push(first);
        state.replies.get(&target).cloned()
    };
    let head = |status: &str, length: u64, more: &str| {
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n")
    };
    let (head, body): (String, Vec<u8>) = match reply.unwrap_or(Reply::Status(404, "not here")) {
        Reply::Bytes(bytes) => (head("200 OK", bytes.len() as u64, ""), bytes),
        Reply::Status(status, text) => (head(&format!("{status} X"), text.len() as u64, ""), text.into()),
        Reply::Page { is_said } => {
            let page = b"\n<!DOCTYPE html><html><body>Log in</body></html>".to_vec();
            let kind = if is_said { "content-type: text/html; charset=utf-8\r\n" } else { "" };
            (head("200 OK", page.len() as u64, kind), page)
        }
        Reply::Truncated(bytes) => (head("200 OK", bytes.len() as u64, ""), bytes[..bytes.len() / 2].to_vec()),
        Reply::Endless => (head("200 OK", 1 << 50, ""), vec![b'{'; 1000]),
        Reply::Stalled => (head("200 OK", 1 << 20, ""), vec![b'{'; 1000]),
        Reply::Redirect(to) => (head("302 Found", 0, &format!("location: {to}\r\n")), Vec::new()),
    };
    // Whoever asked may have gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).and_then(|()| stream.flush());
    if head.contains("content-length: 1048576\r\n") {
        // Stalled: until the other side closes.
        let _ = lines.next();
    }
}
