//! An address where connecting neither succeeds nor fails.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};

use super::FakeProvider;

/// How long a connection on loopback may take before the queue counts as full.
const FULL_WHEN_SLOWER_THAN: Duration = Duration::from_millis(200);

/// A listening socket whose queue is full and which nobody accepts from: the kernel drops what else arrives.
pub struct Blackhole {
    listener: std::net::TcpListener,
    // Held only to fill the queue.
    fillers: Vec<TcpStream>,
    address: SocketAddr,
}

impl Blackhole {
    /// Opens one on loopback.
    pub async fn open() -> Blackhole {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port on loopback");
        let listener = socket.listen(1).expect("a listening socket");
        let address = listener.local_addr().expect("a bound socket has an address");
        let mut fillers = Vec::new();
        while let Ok(connected) = tokio::time::timeout(FULL_WHEN_SLOWER_THAN, TcpStream::connect(address)).await {
            fillers.push(connected.expect("loopback takes connections"));
            assert!(fillers.len() < 100, "the queue of a socket with backlog 1 does not fill");
        }
        let listener = listener.into_std().expect("a tokio socket is a socket");
        Blackhole { listener, fillers, address }
    }

    /// What `base_url` of a foreign server should be.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Starts to answer: the kernels' next attempt to connect succeeds.
    pub fn become_provider(self) -> FakeProvider {
        drop(self.fillers);
        FakeProvider::start_on(self.listener)
    }
}
