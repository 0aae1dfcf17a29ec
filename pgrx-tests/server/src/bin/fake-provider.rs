//! The fake OpenAI-compatible provider by itself: `fake-provider [--port N]`.
//!
//! Prints its base URL and serves until it is interrupted. See the `provider` module for what it answers.

use std::io::Write;
use std::net::TcpListener;
use std::process::ExitCode;

use ragent_server_tests::provider::FakeProvider;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: fake-provider [--port N]    (0, the default, chooses a free port)";

fn main() -> ExitCode {
    let port = match port(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(port) => port,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let listener = match TcpListener::bind(("127.0.0.1", port)) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("cannot listen on 127.0.0.1:{port}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let provider = FakeProvider::start_on(listener);
    println!("{}", provider.base_url());
    // Whoever started us reads the address through a pipe.
    let _ = std::io::stdout().flush();
    wait_for_signal();
    ExitCode::SUCCESS
}

fn port(arguments: &[String]) -> Result<u16, String> {
    match arguments {
        [] => Ok(0),
        [flag, value] if flag == "--port" => value.parse().map_err(|_| format!("{value:?} is not a port")),
        other => Err(format!("unexpected arguments: {}", other.join(" "))),
    }
}

fn wait_for_signal() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).expect("a handler for SIGINT");
        let mut terminate = signal(SignalKind::terminate()).expect("a handler for SIGTERM");
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    });
}
