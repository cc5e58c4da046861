//! Turns the compiled .proto files into Rust. `make proto` compiles them, so that a build needs neither protoc nor a parser of
//! its own. With the feature `json` the messages are JSON too, by the rules of [`field_rules`]; comments in the .proto files
//! become the words of its schemas.

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use tonic_prost_build::Builder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = compiled("proto/tenure_v1.bin")?;
    let builder = tonic_prost_build::configure().codec_path("crate::codec::TreatyCodec").btree_map(".");
    json(builder, &descriptors).compile_fds(descriptors)?;
    // The dialect of etcd has tonic's own codec: its clients do not know Tenure's failures.
    // Keys and values are shared with the ledger: one value may be told to thousands of watchers.
    tonic_prost_build::configure().bytes(".mvccpb.KeyValue").compile_fds(compiled("proto/etcd.bin")?)?;
    Ok(())
}

fn compiled(path: &str) -> Result<FileDescriptorSet, Box<dyn std::error::Error>> {
    Ok(FileDescriptorSet::decode(&*std::fs::read(path)?)?)
}

/// Messages that are read as JSON: what they do not know is refused. The door has bodies of its own for other requests.
const READ: &[&str] = &[
    "AddMemberRequest",
    "BreakRequest",
    "CancelRequest",
    "Check",
    "Class",
    "Force",
    "GrantRequest",
    "Label",
    "ReleaseRequest",
    "RenewHandleRequest",
    "RenewRequest",
    "TransferLeadRequest",
    "TransferRequest",
    "Want",
];

/// Messages with many facts, of which few are said at once: what is zero is left out.
const SPARSE: &[&str] = &["Failure", "Event", "End"];

/// But every event has these.
const ALWAYS: &[&str] = &["revision", "at_ms", "wall_ms"];

fn json(mut builder: Builder, descriptors: &FileDescriptorSet) -> Builder {
    let messages = descriptors.file.iter().flat_map(|file| &file.message_type);
    for message in messages.filter(|message| !has_choice(message)) {
        let path = format!(".tenure.v1.{}", message.name());
        let is_read = READ.contains(&message.name());
        if message.name().ends_with("Request") && !is_read {
            continue;
        }
        let mut rules = vec!["derive(serde::Serialize, utoipa::ToSchema)"];
        if is_read {
            rules.push("derive(serde::Deserialize)");
            rules.push("serde(default, deny_unknown_fields)");
        }
        for rule in rules {
            builder = builder.type_attribute(&path, format!(r#"#[cfg_attr(feature = "json", {rule})]"#));
        }
        for field in &message.field {
            let path = format!("{path}.{}", field.name());
            for rule in field_rules(message, field, is_read) {
                builder = builder.field_attribute(&path, format!(r#"#[cfg_attr(feature = "json", {rule})]"#));
            }
        }
    }
    builder
}

/// Whether one of several fields is set. Such a message has no JSON of its own: the door gives it one.
fn has_choice(message: &DescriptorProto) -> bool {
    message.field.iter().any(|field| field.oneof_index.is_some() && !field.proto3_optional())
}

/// How a field becomes JSON: a lease id is text, because not every JSON number holds 63 bits; bytes are text or hex;
/// what says nothing is left out.
fn field_rules(message: &DescriptorProto, field: &FieldDescriptorProto, is_read: bool) -> Vec<String> {
    let is_list = field.label() == Label::Repeated;
    let with = |module: &str, schema: &str| {
        vec![format!(r#"serde(with = "crate::json::{module}")"#), format!("schema(value_type = {schema})")]
    };
    let unless = |test: &str| vec![format!(r#"serde(skip_serializing_if = "{test}")"#)];
    let join = |rules: [Vec<String>; 2]| rules.concat();
    match field.r#type() {
        Type::Uint64 | Type::Fixed64 if is_id(message, field) && is_list => with("ids", "Vec<crate::json::Id>"),
        Type::Uint64 if is_id(message, field) => join([with("id", "crate::json::Id"), unless("crate::json::is_zero")]),
        Type::Bytes if field.name() == "next" => join([with("hex_text", "String"), unless("Vec::is_empty")]),
        Type::Bytes => join([with("bytes", "crate::json::Bytes"), unless("Vec::is_empty")]),
        Type::Enum => {
            let name = field.type_name().rsplit('.').next().unwrap_or_default();
            let module = name.to_lowercase();
            join([with(&module, &format!("crate::json::{name}Word")), unless("crate::json::is_nothing")])
        }
        Type::Message if is_list && field.type_name().ends_with("LabelsEntry") => {
            let read = is_read.then(|| r#"serde(deserialize_with = "crate::json::labels")"#.to_owned());
            join([unless("std::collections::BTreeMap::is_empty"), read.into_iter().collect()])
        }
        Type::Message if field.type_name().ends_with(".Cursor") => {
            join([with("cursor", "Option<String>"), unless("Option::is_none")])
        }
        // An instance in JSON is flat, as whoever registers it writes it.
        Type::Message if field.name() == "details" => {
            vec!["serde(flatten)".into(), "schema(value_type = Details)".into()]
        }
        Type::Message if !is_list => {
            let read = is_read.then(|| r#"serde(deserialize_with = "crate::json::maybe_object")"#.to_owned());
            join([unless("Option::is_none"), read.into_iter().collect()])
        }
        Type::String if !is_list => unless("String::is_empty"),
        _ if field.proto3_optional() => unless("Option::is_none"),
        Type::Uint64 if message.name() == "Event" && ALWAYS.contains(&field.name()) => Vec::new(),
        Type::Uint64 if SPARSE.contains(&message.name()) => unless("crate::json::is_zero"),
        _ if is_list && SPARSE.contains(&message.name()) => unless("Vec::is_empty"),
        _ => Vec::new(),
    }
}

fn is_id(message: &DescriptorProto, field: &FieldDescriptorProto) -> bool {
    match field.name() {
        "lease" | "parent" | "cluster" => true,
        "leases" | "children" => field.label() == Label::Repeated,
        "to" => message.name() == "TransferRequest",
        "next" | "from" => message.name().starts_with("ListLeases"),
        _ => false,
    }
}
