//! `ragent-model`: puts models for server `local` where PostgreSQL finds them.

mod add;
mod arguments;
mod catalogue;
mod describe;
mod download;
mod failure;
mod source;
mod store;
mod sums;

use std::process::ExitCode;

use arguments::Command;
use failure::Failure;
use store::Store;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    match arguments::parse(std::env::args().skip(1).collect())? {
        Command::Help => print!("{}", arguments::usage()),
        Command::Add { dir, request } => {
            let store = Store::new(dir);
            let name = add::add(&store, &request)?;
            print!("{}", describe::model(&store, &name));
            println!("\nUse it as local/{name}, in sessions that begin now.");
        }
        Command::List { dir } => {
            let store = Store::new(dir);
            let names = store.names()?;
            for name in &names {
                print!("{}", describe::model(&store, name));
            }
            if names.is_empty() {
                println!("There is no model in {}.", store.dir().display());
            }
        }
        Command::Remove { dir, name } => {
            let store = Store::new(dir);
            store.lock()?.remove(&name)?;
            println!("removed {name} from {}", store.dir().display());
        }
    }
    Ok(())
}
