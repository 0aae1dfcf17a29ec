//! As much of HTTP/1.1 as a provider and a test need.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A larger head than this is not an HTTP client's.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// A request as it came from the socket.
#[derive(Debug)]
pub struct Request {
    /// `GET`, `POST`.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// What follows the question mark.
    pub query: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    /// Reads the next request; `None` when the client has closed the connection between two requests.
    pub async fn read<R>(reader: &mut R) -> io::Result<Option<Request>>
    where
        R: AsyncBufRead + AsyncRead + Unpin,
    {
        let Some((start, headers)) = read_head(reader).await? else {
            return Ok(None);
        };
        let mut words = start.split_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(invalid("a request line has a method and a target"));
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
        let body = read_body(reader, &headers).await?;
        Ok(Some(Request { method, path, query, headers, body }))
    }
}

/// A response before anything goes wrong with it.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The media type of the body.
    pub content_type: &'static str,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// A JSON response.
    pub fn json(status: u16, body: &serde_json::Value) -> Response {
        Response { status, content_type: "application/json", headers: Vec::new(), body: body.to_string().into_bytes() }
    }

    /// An error in the words of the OpenAI API.
    pub fn error(status: u16, message: &str) -> Response {
        Response::json(status, &serde_json::json!({"error": {"message": message, "type": "fake", "code": status}}))
    }

    /// The bytes of the status line and the headers.
    pub fn head(&self) -> Vec<u8> {
        let length = format!("content-length: {}\r\n", self.body.len());
        self.head_with(&length)
    }

    /// The bytes of the status line and the headers, with another framing than a content length.
    pub fn head_with(&self, framing: &str) -> Vec<u8> {
        let mut head =
            format!("HTTP/1.1 {} {}\r\ncontent-type: {}\r\n", self.status, reason(self.status), self.content_type);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(framing);
        head.push_str("\r\n");
        head.into_bytes()
    }
}

/// One request on a connection of its own; the status and the body of its response.
pub async fn call(address: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer test\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut reader = tokio::io::BufReader::new(stream);
    let Some((start, headers)) = read_head(&mut reader).await? else {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed before a response"));
    };
    let status = start.split_whitespace().nth(1).and_then(|s| s.parse().ok());
    let status = status.ok_or_else(|| invalid("a status line has a code"))?;
    Ok((status, read_body(&mut reader, &headers).await?))
}

type Headers = Vec<(String, String)>;

/// The start line and the headers; `None` at the end of the stream.
async fn read_head<R: AsyncBufRead + Unpin>(reader: &mut R) -> io::Result<Option<(String, Headers)>> {
    let mut start = String::new();
    if reader.read_line(&mut start).await? == 0 {
        return Ok(None);
    }
    let mut headers = Vec::new();
    let mut size = start.len();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed inside the head"));
        }
        size += line.len();
        if size > MAX_HEAD_BYTES {
            return Err(invalid("the head is too large"));
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(Some((start, headers)));
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
}

async fn read_body<R: AsyncBufRead + Unpin>(reader: &mut R, headers: &Headers) -> io::Result<Vec<u8>> {
    let value = |name| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    if value("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
        return read_chunks(reader).await;
    }
    let length = value("content-length").map_or(Ok(0), str::parse::<usize>);
    let mut body = vec![0; length.map_err(|_| invalid("content-length is a number"))?];
    reader.read_exact(&mut body).await?;
    Ok(body)
}

async fn read_chunks<R: AsyncBufRead + Unpin>(reader: &mut R) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let size = usize::from_str_radix(line.trim(), 16).map_err(|_| invalid("a chunk size is hexadecimal"))?;
        let start = body.len();
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..]).await?;
        reader.read_line(&mut String::new()).await?;
        if size == 0 {
            return Ok(body);
        }
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        408 => "Request Timeout",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        _ => "Status",
    }
}
