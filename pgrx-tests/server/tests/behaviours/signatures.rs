//! The SQL signature of every C function is the one its Rust function was written for.
//!
//! Signatures stand in `sql/` and not in Rust (`#[pg_extern(sql = false)]`), so nothing in a build compares them, and a
//! mismatch reads memory as something it is not. Here the Rust sources are parsed and compared with the catalog.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::{Group, TokenStream, TokenTree};
use ragent_server_tests::database::Database;
use syn::parse::Parser;
use syn::punctuated::Punctuated;

/// A function as Rust has it.
#[derive(Debug)]
struct RustFunction {
    place: String,
    is_trigger: bool,
    arguments: Vec<Value>,
    result: Returned,
}

/// A value that crosses the border: the SQL types it may have, and whether it may be NULL.
#[derive(Debug, PartialEq)]
struct Value {
    sql: Vec<String>,
    nullable: bool,
}

#[derive(Debug, PartialEq)]
enum Returned {
    One(Value),
    /// Names (where the source says them) and types of the columns of a set of rows.
    Rows(Vec<(Option<String>, Value)>),
}

/// A function as the catalog has it.
struct SqlFunction {
    signature: String,
    strict: bool,
    arguments: Vec<String>,
    result: String,
    columns: Vec<(String, String)>,
    is_set: bool,
}

fn source_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src")
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// The functions of one source file, by the name of their C symbol.
fn functions_of(place: &str, source: &str) -> Vec<(String, RustFunction)> {
    let file = syn::parse_file(source).unwrap_or_else(|e| panic!("{place}: {e}"));
    let aliases: BTreeMap<String, syn::Type> = file
        .items
        .iter()
        .filter_map(|item| match item {
            syn::Item::Type(alias) => Some((alias.ident.to_string(), (*alias.ty).clone())),
            _ => None,
        })
        .collect();
    let items = file.items.iter().cloned().chain(expanded(place, &file));
    let functions = items.filter_map(|item| match item {
        syn::Item::Fn(function) => Some(function),
        _ => None,
    });
    functions
        .filter_map(|function| {
            let has = |name: &str| function.attrs.iter().any(|a| a.path().is_ident(name));
            if !has("pg_extern") && !has("pg_trigger") {
                return None;
            }
            let name = function.sig.ident.to_string();
            let place = format!("{place}: fn {name}");
            let is_trigger = has("pg_trigger");
            let arguments = if is_trigger { vec![] } else { arguments_of(&place, &function.sig) };
            let result = match &function.sig.output {
                _ if is_trigger => Returned::One(Value { sql: vec!["trigger".into()], nullable: true }),
                syn::ReturnType::Default => Returned::One(Value { sql: vec!["void".into()], nullable: false }),
                syn::ReturnType::Type(_, result) => returned(&place, result, &aliases),
            };
            Some((format!("{name}_wrapper"), RustFunction { place, is_trigger, arguments, result }))
        })
        .collect()
}

/// What the file's own macros stand for where they are used.
fn expanded(place: &str, file: &syn::File) -> Vec<syn::Item> {
    let macros: Vec<&syn::ItemMacro> = file
        .items
        .iter()
        .filter_map(|item| match item {
            syn::Item::Macro(item) => Some(item),
            _ => None,
        })
        .collect();
    let rules: BTreeMap<String, (TokenStream, TokenStream)> = macros
        .iter()
        .filter_map(|item| {
            let mut groups = item.mac.tokens.clone().into_iter().filter_map(|token| match token {
                TokenTree::Group(group) => Some(group.stream()),
                _ => None,
            });
            Some((item.ident.as_ref()?.to_string(), (groups.next()?, groups.next()?)))
        })
        .collect();
    let uses = macros.iter().filter_map(|item| Some((rules.get(&item.mac.path.get_ident()?.to_string())?, item)));
    uses.flat_map(|((matcher, body), item)| {
        let names = parts(matcher.clone()).into_iter().filter_map(|part| part.get(1).map(ToString::to_string));
        let values: BTreeMap<String, Vec<TokenTree>> = names.zip(parts(item.mac.tokens.clone())).collect();
        let file: syn::File =
            syn::parse2(substituted(body.clone(), &values)).unwrap_or_else(|e| panic!("{place}: a macro: {e}"));
        file.items
    })
    .collect()
}

/// Tokens between commas and arrows.
fn parts(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut parts = vec![Vec::new()];
    let mut before_is_equals = false;
    for token in tokens {
        let punct = if let TokenTree::Punct(punct) = &token { punct.as_char() } else { ' ' };
        match punct {
            ',' => parts.push(Vec::new()),
            '>' if before_is_equals => {
                parts.last_mut().expect("never empty").pop();
                parts.push(Vec::new());
            }
            _ => parts.last_mut().expect("never empty").push(token),
        }
        before_is_equals = punct == '=';
    }
    parts
}

/// The tokens with `$name` replaced by what `name` stands for.
fn substituted(tokens: TokenStream, values: &BTreeMap<String, Vec<TokenTree>>) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_dollar = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '$');
        let value = tokens.peek().filter(|_| is_dollar).and_then(|name| values.get(&name.to_string()));
        match (value, token) {
            (Some(value), _) => {
                out.extend(value.iter().cloned());
                tokens.next();
            }
            (None, TokenTree::Group(group)) => {
                out.push(Group::new(group.delimiter(), substituted(group.stream(), values)).into());
            }
            (None, token) => out.push(token),
        }
    }
    out.into_iter().collect()
}

fn arguments_of(place: &str, signature: &syn::Signature) -> Vec<Value> {
    let arguments = signature.inputs.iter().map(|input| match input {
        syn::FnArg::Typed(argument) => value(place, &argument.ty),
        syn::FnArg::Receiver(_) => panic!("{place}: a method"),
    });
    arguments.collect()
}

fn returned(place: &str, result: &syn::Type, aliases: &BTreeMap<String, syn::Type>) -> Returned {
    match generic(result) {
        Some((name, inner)) if name == "Result" => returned(place, &inner[0], aliases),
        Some((name, inner)) if name == "TableIterator" => {
            let mut row = inner.last().cloned().expect("a row type");
            if let syn::Type::Path(path) = &row
                && let Some(alias) = path.path.get_ident().and_then(|i| aliases.get(&i.to_string()))
            {
                row = alias.clone();
            }
            let syn::Type::Tuple(tuple) = row else { panic!("{place}: the row of a set is no tuple: write it out") };
            Returned::Rows(tuple.elems.iter().map(|column| named_column(place, column)).collect())
        }
        Some((name, inner)) if name == "SetOfIterator" => {
            Returned::Rows(vec![(None, value(place, inner.last().expect("a row type")))])
        }
        _ => Returned::One(value(place, result)),
    }
}

/// `name!(column, Type)`, or a type alone.
fn named_column(place: &str, column: &syn::Type) -> (Option<String>, Value) {
    let syn::Type::Macro(named) = column else { return (None, value(place, column)) };
    let parts = Punctuated::<syn::Type, syn::Token![,]>::parse_terminated
        .parse2(named.mac.tokens.clone())
        .unwrap_or_else(|e| panic!("{place}: {e}"));
    let name = match &parts[0] {
        syn::Type::Path(path) => path.path.get_ident().map(|i| i.to_string()),
        _ => None,
    };
    (name, value(place, &parts[1]))
}

/// The last segment of a path and its type arguments, where it has some.
fn generic(of: &syn::Type) -> Option<(String, Vec<syn::Type>)> {
    let syn::Type::Path(path) = of else { return None };
    let segment = path.path.segments.last()?;
    let syn::PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    let types = arguments.args.iter().filter_map(|a| match a {
        syn::GenericArgument::Type(t) => Some(t.clone()),
        _ => None,
    });
    Some((segment.ident.to_string(), types.collect()))
}

/// What SQL types a Rust type reads or writes. A type that is not listed here fails, so that a new one is thought about.
fn value(place: &str, of: &syn::Type) -> Value {
    let one = |sql: &[&str]| Value { sql: sql.iter().map(|s| (*s).to_owned()).collect(), nullable: false };
    if matches!(of, syn::Type::Tuple(tuple) if tuple.elems.is_empty()) {
        return one(&["void"]);
    }
    match generic(of) {
        Some((name, inner)) if name == "Option" => return Value { nullable: true, ..value(place, &inner[0]) },
        Some((name, inner)) if name == "Vec" => {
            let element = value(place, &inner[0]);
            return Value { sql: element.sql.iter().map(|s| format!("{s}[]")).collect(), nullable: false };
        }
        _ => {}
    }
    let syn::Type::Path(path) = of else { panic!("{place}: a type this test does not know") };
    match path.path.segments.last().map(|s| s.ident.to_string()).as_deref() {
        Some("String") => one(&["text"]),
        Some("bool") => one(&["boolean"]),
        Some("i32") => one(&["integer"]),
        Some("i64") => one(&["bigint"]),
        Some("f64") => one(&["double precision"]),
        Some("Oid") => one(&["oid", "regclass"]),
        Some("JsonB" | "Jsonb" | "PlainJson") => one(&["jsonb"]),
        Some("PlainText") => one(&["text"]),
        // The call itself: the function looks at its arguments and their types.
        Some("FunctionCallInfo") => one(&["anyelement", "\"any\""]),
        Some("Uuid") => one(&["uuid"]),
        Some("Interval") => one(&["interval"]),
        Some("Vector") => one(&["vector"]),
        other => panic!("{place}: say in `value` which SQL type {other:?} is"),
    }
}

/// What is wrong between the two, if anything.
fn difference(rust: &RustFunction, sql: &SqlFunction) -> Option<String> {
    let wrong = |what: String| Some(format!("{} and {}: {what}", rust.place, sql.signature));
    if rust.arguments.len() != sql.arguments.len() {
        return wrong(format!("{} arguments and {}", rust.arguments.len(), sql.arguments.len()));
    }
    for (number, (r, s)) in rust.arguments.iter().zip(&sql.arguments).enumerate() {
        if !r.sql.contains(s) {
            return wrong(format!("argument {} is {:?} and {s}", number + 1, r.sql));
        }
        if !r.nullable && !sql.strict {
            return wrong(format!("argument {} cannot be NULL in Rust, and the function is not STRICT", number + 1));
        }
    }
    match &rust.result {
        Returned::One(value) if sql.is_set || !value.sql.contains(&sql.result) => {
            wrong(format!("returns {:?} and {}", value.sql, sql.result))
        }
        Returned::One(_) => None,
        Returned::Rows(columns) => {
            let fits = sql.is_set
                && columns.len() == sql.columns.len()
                && columns.iter().zip(&sql.columns).all(|((name, value), (sql_name, sql_type))| {
                    name.as_ref().is_none_or(|name| name == sql_name) && value.sql.contains(sql_type)
                });
            if fits { None } else { wrong(format!("rows {columns:?} and {:?}", sql.columns)) }
        }
    }
}

const CATALOG: &str = "
    SELECT p.prosrc, p.oid::regprocedure::text, p.proisstrict, p.proretset, format_type(p.prorettype, NULL),
           ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, n) ORDER BY n),
           ARRAY(SELECT coalesce(name, '') FROM unnest(p.proargmodes, p.proargnames) WITH ORDINALITY AS a (mode, name, n)
                 WHERE mode = 't' ORDER BY n),
           ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargmodes, p.proallargtypes) WITH ORDINALITY AS a (mode, t, n)
                 WHERE mode = 't' ORDER BY n)
    FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    WHERE l.lanname = 'c' AND p.probin LIKE '%pg_ragent%'";

#[tokio::test]
async fn every_rust_function_has_the_signature_sql_gives_it() {
    let (_database, session) = Database::open().await;
    let mut files = Vec::new();
    rust_files(&source_folder(), &mut files);
    let mut rust = BTreeMap::new();
    for file in files {
        let source = std::fs::read_to_string(&file).expect("a readable source");
        let place = file.strip_prefix(source_folder()).expect("below src").display().to_string();
        rust.extend(functions_of(&place, &source));
    }
    let mut wrong = Vec::new();
    let mut seen = Vec::new();
    for row in session.query(CATALOG, &[]).await.expect("the catalog can be read") {
        let symbol: String = row.get(0);
        let (names, types): (Vec<String>, Vec<String>) = (row.get(6), row.get(7));
        let sql = SqlFunction {
            signature: row.get(1),
            strict: row.get(2),
            is_set: row.get(3),
            result: row.get(4),
            arguments: row.get(5),
            columns: names.into_iter().zip(types).collect(),
        };
        match rust.get(&symbol) {
            Some(function) => wrong.extend(difference(function, &sql)),
            None => wrong.push(format!("{}: no Rust function for {symbol}", sql.signature)),
        }
        seen.push(symbol);
    }
    wrong.extend(
        rust.iter().filter(|(symbol, _)| !seen.contains(symbol)).map(|(_, f)| format!("{}: not in SQL", f.place)),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rust.values().any(|f| f.is_trigger) && rust.len() >= 12, "only {} functions were found", rust.len());
}

#[test]
fn a_mismatch_is_noticed() {
    let source = "
        type Row = (name!(a, i32), Option<String>);
        #[pg_extern(sql = false)]
        fn one(x: Option<String>, y: i32) -> Result<Option<Vec<Option<Vector>>>, ErrorReport> {}
        #[pg_extern(sql = false)]
        fn rows() -> TableIterator<'static, Row> {}
        macro_rules! function {
            ($name:ident, $type:ident, $x:ident => $made:expr) => {
                #[pg_extern(sql = false)]
                fn $name($x: Option<$type>) -> i32 { $made }
            };
        }
        function!(of_macro, Vector, v => v.len());
    ";
    let functions: BTreeMap<String, RustFunction> = functions_of("test", source).into_iter().collect();
    assert_eq!(functions["of_macro_wrapper"].arguments, [Value { sql: vec!["vector".into()], nullable: true }]);
    let one = |strict, arguments: [&str; 2], result: &str| {
        let sql = SqlFunction {
            signature: "one".into(),
            strict,
            arguments: arguments.map(str::to_owned).to_vec(),
            result: result.into(),
            columns: vec![],
            is_set: false,
        };
        difference(&functions["one_wrapper"], &sql)
    };
    assert_eq!(one(true, ["text", "integer"], "vector[]"), None);
    assert!(one(false, ["text", "integer"], "vector[]").unwrap().contains("argument 2 cannot be NULL"));
    assert!(one(true, ["text", "bigint"], "vector[]").unwrap().contains("argument 2 is"));
    assert!(one(true, ["text", "integer"], "vector").unwrap().contains("returns"));
    let rows = |columns: &[(&str, &str)]| {
        let sql = SqlFunction {
            signature: "rows".into(),
            strict: false,
            arguments: vec![],
            result: "record".into(),
            columns: columns.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect(),
            is_set: true,
        };
        difference(&functions["rows_wrapper"], &sql)
    };
    assert_eq!(rows(&[("a", "integer"), ("b", "text")]), None);
    assert!(rows(&[("b", "integer"), ("b", "text")]).is_some());
    assert!(rows(&[("a", "integer"), ("b", "jsonb")]).is_some());
    assert!(rows(&[("a", "integer")]).is_some());
}
