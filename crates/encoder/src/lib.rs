//! A BERT-family sentence encoder on the CPU.
