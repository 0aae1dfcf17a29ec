//! The encoder runs on the caller's thread alone. A test binary of its own, so that no other test's threads are counted.
#![cfg(target_os = "linux")]

mod common;

use ragent_encoder::Encoder;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("the process has threads").count()
}

#[test]
fn no_thread_is_started() {
    let before = threads();
    let mut encoder = Encoder::open(&common::minilm()).expect("the model opens");
    let text = "some text that is embedded many times ".repeat(20);
    encoder.embed(&[text.as_str(); 20], &mut || true).expect("the texts are embedded");
    common::count(&encoder, &text);
    assert_eq!(threads(), before);
}
