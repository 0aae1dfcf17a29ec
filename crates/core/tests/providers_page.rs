//! The tables of docs/providers.md say what the list of APIs says.
//!
//! `REGRESS_ACCEPT=1 cargo test -p ragent-core --test providers_page` writes them anew; read the difference.

use std::path::Path;

use ragent_core::provider::{API, ForeignObject, OptionKind, OptionSpec, Transport, WIRES, wire_names};

/// The options that may be set on such an object, each once, with the names of the APIs that take it.
fn options(object: ForeignObject) -> Vec<(OptionSpec, Vec<&'static str>)> {
    let mut options: Vec<(OptionSpec, Vec<&'static str>)> = Vec::new();
    if API.objects.contains(&object) {
        options.push((API, WIRES.iter().map(|wire| wire.name()).collect()));
    }
    for wire in WIRES {
        for spec in wire.options().iter().filter(|spec| spec.objects.contains(&object)) {
            match options.iter_mut().find(|(known, _)| known.name == spec.name) {
                Some((_, names)) => names.push(wire.name()),
                None => options.push((*spec, vec![wire.name()])),
            }
        }
    }
    options
}

fn what(spec: &OptionSpec) -> String {
    let mut what = spec.description.to_owned();
    if spec.kind == OptionKind::Api {
        what.push_str(&format!(": {}", wire_names(WIRES)));
    }
    if let Some(range) = spec.range() {
        what.push_str(&format!(", {range}"));
    }
    if spec.required {
        what.push_str("; required");
    }
    if spec.superuser_only {
        what.push_str("; superuser only");
    }
    what
}

fn apis() -> String {
    let mut table = "| `api` | who speaks it | chat | embeddings | reranking |\n|---|---|---|---|---|\n".to_owned();
    for wire in WIRES {
        let offers = match wire.transport() {
            Transport::InProcess => [true, true, false],
            Transport::Http(http) => [http.chat().is_some(), http.embeddings().is_some(), http.rerank().is_some()],
        };
        let [chat, embeddings, rerank] = offers.map(|offered| if offered { "yes" } else { "no" });
        table += &format!("| `{}` | {} | {chat} | {embeddings} | {rerank} |\n", wire.name(), wire.description());
    }
    table
}

fn server_options() -> String {
    let mut table = "| of a server | what it is | default | `api` |\n|---|---|---|---|\n".to_owned();
    for (spec, names) in options(ForeignObject::Server) {
        let names = if names.len() == WIRES.len() { "every".to_owned() } else { names.join(", ") };
        table += &format!("| `{}` | {} | {} | {names} |\n", spec.name, what(&spec), spec.default().unwrap_or_default());
    }
    table
}

fn mapping_options() -> String {
    let mut table = "| of a user mapping | what it is |\n|---|---|\n".to_owned();
    for (spec, _) in options(ForeignObject::UserMapping) {
        table += &format!("| `{}` | {} |\n", spec.name, what(&spec));
    }
    table
}

/// The page with the text between `<!-- NAME -->` and `<!-- end -->` replaced.
fn with_table(page: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- {name} -->\n");
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("docs/providers.md has no mark {begin:?}"));
    let (_, after) = rest.split_once("<!-- end -->").unwrap_or_else(|| panic!("{begin:?} has no end"));
    format!("{before}{begin}{table}<!-- end -->{after}")
}

#[test]
fn the_tables_of_the_guide_are_those_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/providers.md");
    let page = std::fs::read_to_string(&path).expect("docs/providers.md can be read");
    let mut expected = page.clone();
    for (name, table) in
        [("apis", apis()), ("server options", server_options()), ("user mapping options", mapping_options())]
    {
        expected = with_table(&expected, name, &table);
    }
    if std::env::var_os("REGRESS_ACCEPT").is_some() {
        std::fs::write(&path, expected).expect("docs/providers.md can be written");
    } else {
        assert_eq!(page, expected, "docs/providers.md differs from the code (accept with REGRESS_ACCEPT=1)");
    }
}
