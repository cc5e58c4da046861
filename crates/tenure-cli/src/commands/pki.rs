//! `tenure cluster pki` and `tenure cluster keygen`: what nodes and clients prove themselves by. It makes files and prints
//! lines; it asks no server.

use crate::args::{KeyRole, Keygen, Nodes, Output, Pki};
use crate::clock;
use crate::failure::Failure;
use crate::print;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tenure_server::{Entropy, KeyRights, PEERS_MAX, Role, SystemEntropy, draw_api_key};
use tenure_server::{NodeName, is_cluster_name};

/// How long certificates are good for, in years. The authority outlives many of its nodes'.
const AUTHORITY_YEARS: i32 = 10;
const NODE_YEARS: i32 = 2;

/// Names under which a node is spoken to on its own machine.
const HERE: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

const HOST_BYTES_MAX: usize = 253;

/// Where the name of the cluster is kept, beside the authority.
const NAME_FILE: &str = "cluster-name";

const WHAT: &str = "cannot make certificates";

pub(crate) fn pki(output: Output, order: &Pki) -> Result<ExitCode, Failure> {
    match order {
        Pki::Init(nodes) => init(output, nodes)?,
        Pki::Add(nodes) => add(output, nodes)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn keygen(output: Output, keygen: &Keygen) -> Result<ExitCode, Failure> {
    draw(output, keygen)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct ApiKey {
    name: String,
    secret: String,
    line: String,
}

fn draw(output: Output, keygen: &Keygen) -> Result<(), Failure> {
    let what = "cannot draw an API key";
    let rights = rights(keygen);
    rights.check().map_err(|why| Failure::usage(what, why, "See API keys in docs/operating.md."))?;
    let (secret, line) = draw_api_key(&keygen.name, rights).ok_or_else(|| {
        let why = format!("{:?} is no name for an API key", keygen.name);
        Failure::usage(what, &why, "Use up to 64 letters, digits and -._")
    })?;
    let words = format!("{secret}\n{line}");
    print::one(output, &words, &ApiKey { name: keygen.name.clone(), secret, line });
    print::say("the first line is the secret. It is shown this once: keep it in a file of its own,");
    print::say("        and name that file to clients with TENURE_API_KEY_FILE");
    print::say("the second line is for the file of `tenure serve --api-keys FILE`; SIGHUP lets a server read it again");
    Ok(())
}

/// What the new key may do.
fn rights(keygen: &Keygen) -> KeyRights {
    let role = match (keygen.role, keygen.read_only) {
        (Some(KeyRole::Read), _) | (None, true) => Role::Read,
        (Some(KeyRole::Hold), _) => Role::Hold,
        (Some(KeyRole::Full) | None, _) => Role::Full,
    };
    KeyRights {
        role,
        prefixes: keygen.prefixes.clone(),
        leases: keygen.leases,
        requests: keygen.requests,
        watchers: keygen.watchers,
    }
}

/// A file on its way.
struct Part {
    path: PathBuf,
    text: String,
    is_secret: bool,
}

/// An authority, as whoever has its key can always make it again.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    /// Its name is that of its key, so that two authorities are never taken for each other.
    fn of(key: KeyPair) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let id: String = params.key_identifier(&key).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, format!("Tenure cluster authority {id}"));
        run_for(&mut params, AUTHORITY_YEARS);
        Self { params, key }
    }

    fn files(&self, dir: &Path) -> Result<[Part; 2], rcgen::Error> {
        let certificate = self.params.self_signed(&self.key)?.pem();
        Ok(pair(dir, "ca", certificate, &self.key))
    }

    /// A certificate for both ends of a connection between peers; clients may be shown it, too. Without the name of a cluster
    /// it has no identity.
    fn node(&self, dir: &Path, cluster: Option<&str>, node: u64, host: &str) -> Result<[Part; 2], rcgen::Error> {
        let others = HERE.iter().filter(|name| **name != host);
        let names: Vec<String> = [&host].into_iter().chain(others).map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names)?;
        if let Some(name) = cluster.and_then(|cluster| NodeName::new(cluster, node)) {
            params.subject_alt_names.push(SanType::URI(name.to_string().as_str().try_into()?));
        }
        params.distinguished_name.push(DnType::CommonName, format!("Tenure node {node}"));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        run_for(&mut params, NODE_YEARS);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key))?.pem();
        Ok(pair(dir, &format!("node-{node}"), certificate, &key))
    }
}

fn pair(dir: &Path, name: &str, certificate: String, key: &KeyPair) -> [Part; 2] {
    let part = |end: &str, text, is_secret| Part { path: dir.join(format!("{name}.{end}")), text, is_secret };
    [part("crt", certificate, false), part("key", key.serialize_pem(), true)]
}

/// From yesterday on, for clocks that are behind. To the second: of two certificates of a node, the later one is the newer one.
fn run_for(params: &mut CertificateParams, years: i32) {
    let (begin, end) = clock::validity(years);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    (params.not_before, params.not_after) = (epoch + begin, epoch + end);
}

fn init(output: Output, nodes: &Nodes) -> Result<(), Failure> {
    let name = match &nodes.cluster_name {
        Some(name) => checked(name)?,
        None => format!("{:016x}", SystemEntropy.draw()),
    };
    let authority = KeyPair::generate().map(Authority::of).map_err(failed)?;
    let mut parts: Vec<Part> = authority.files(&nodes.dir).map_err(failed)?.into();
    parts.push(name_file(&nodes.dir, &name));
    parts.extend(of_nodes(&authority, Some(&name), nodes)?);
    write(&nodes.dir, &parts)?;
    tell(output, nodes, &parts);
    print::say("ca.key makes further nodes: keep it away from all of them");
    Ok(())
}

fn add(output: Output, nodes: &Nodes) -> Result<(), Failure> {
    let path = nodes.dir.join("ca.key");
    let cannot = |why: String| {
        let why = format!("{}: {why}", path.display());
        Failure::before(WHAT, &why, "Name the directory of `tenure cluster pki init` with --dir.")
    };
    let pem = std::fs::read_to_string(&path).map_err(|error| cannot(error.to_string()))?;
    let key = KeyPair::from_pem(&pem).map_err(|_| cannot("it is not the key of an authority".into()))?;
    let kept = kept_name(&nodes.dir)?;
    let name = match (&kept, &nodes.cluster_name) {
        (_, Some(name)) => Some(checked(name)?),
        (kept, None) => kept.clone(),
    };
    if let (Some(kept), Some(name)) = (&kept, &name)
        && kept != name
    {
        let why = format!("the cluster of {} is {kept}, not {name}", nodes.dir.display());
        return Err(Failure::usage(WHAT, &why, "Leave --cluster-name away, or name another directory with --dir."));
    }
    let mut parts = of_nodes(&Authority::of(key), name.as_deref(), nodes)?;
    if let (None, Some(name)) = (&kept, &name) {
        parts.push(name_file(&nodes.dir, name));
    }
    write(&nodes.dir, &parts)?;
    tell(output, nodes, &parts);
    if name.is_none() {
        print::say(
            "these certificates have no identity, because no cluster name is kept beside ca.key; to make some with",
        );
        print::say("        one, say --cluster-name NAME");
    }
    Ok(())
}

/// The name that `init` has kept; none in a directory from before there were names.
fn kept_name(dir: &Path) -> Result<Option<String>, Failure> {
    let path = dir.join(NAME_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => checked(text.trim_end()).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let why = format!("cannot read {}: {error}", path.display());
            Err(Failure::before(WHAT, &why, "See who may read it."))
        }
    }
}

fn checked(name: &str) -> Result<String, Failure> {
    match is_cluster_name(name) {
        true => Ok(name.to_owned()),
        false => {
            let why = format!("{name:?} is no name for a cluster");
            Err(Failure::usage(WHAT, &why, "Use up to 63 lower-case letters, digits and hyphens."))
        }
    }
}

fn name_file(dir: &Path, name: &str) -> Part {
    Part { path: dir.join(NAME_FILE), text: format!("{name}\n"), is_secret: false }
}

fn of_nodes(authority: &Authority, cluster: Option<&str>, nodes: &Nodes) -> Result<Vec<Part>, Failure> {
    let read = read_nodes(&nodes.nodes)?;
    let made = read.iter().map(|(node, host)| authority.node(&nodes.dir, cluster, *node, host));
    Ok(made.collect::<Result<Vec<_>, _>>().map_err(failed)?.into_iter().flatten().collect())
}

fn read_nodes(words: &[String]) -> Result<BTreeMap<u64, String>, Failure> {
    let next = "Say a number and a host each, without a port, such as 1=10.0.0.1.";
    let mut nodes = BTreeMap::new();
    for word in words {
        let read = word.split_once('=').and_then(|(node, host)| Some((node.parse().ok().filter(|n| *n > 0)?, host)));
        let (node, host) = read
            .filter(|(_, host)| is_host(host))
            .ok_or_else(|| Failure::usage(WHAT, &format!("{word:?} is no node"), next))?;
        if nodes.insert(node, host.to_owned()).is_some() {
            return Err(Failure::usage(WHAT, &format!("node {node} is there twice"), next));
        }
    }
    match nodes.len() > PEERS_MAX {
        true => Err(Failure::usage(WHAT, &format!("there are more than {PEERS_MAX} nodes"), "Name fewer.")),
        false => Ok(nodes),
    }
}

/// An IP address, or a name in DNS.
fn is_host(host: &str) -> bool {
    let is_name = |name: &str| {
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        name.len() <= HOST_BYTES_MAX && name.split('.').all(is_label)
    };
    host.parse::<IpAddr>().is_ok() || is_name(host)
}

/// Writes all of it, or nothing if any of it is there.
fn write(dir: &Path, parts: &[Part]) -> Result<(), Failure> {
    if let Some(part) = parts.iter().find(|part| part.path.exists()) {
        let why = format!("{} is there already", part.path.display());
        return Err(Failure::before(WHAT, &why, "Move it away, or name another directory with --dir."));
    }
    let put = || {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        for part in parts {
            let mode = if part.is_secret { 0o600 } else { 0o644 };
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&part.path)?
                .write_all(part.text.as_bytes())?;
        }
        Ok(())
    };
    put().map_err(|error: std::io::Error| {
        let why = format!("cannot write to {}: {error}", dir.display());
        Failure::new(WHAT, &why, "Remove what was written there, and name another directory with --dir.")
    })
}

#[derive(Serialize)]
struct Written {
    files: Vec<String>,
}

fn tell(output: Output, nodes: &Nodes, parts: &[Part]) {
    let files: Vec<String> = parts.iter().map(|part| part.path.display().to_string()).collect();
    print::one(output, &files.join("\n"), &Written { files });
    let first = nodes.nodes.first().and_then(|node| node.split_once('=')).map_or("1", |(node, _)| node);
    print::say(&format!(
        "certificates of nodes are good for {NODE_YEARS} years; copy ca.crt and its own pair to each, and"
    ));
    print::say("start it with:");
    print::say(&format!(
        "        tenure serve --peer-tls-ca ca.crt --peer-tls-cert node-{first}.crt --peer-tls-key node-{first}.key \
         --tls-cert node-{first}.crt --tls-key node-{first}.key --api-keys FILE"
    ));
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn failed(error: rcgen::Error) -> Failure {
    Failure::before(WHAT, &error.to_string(), "Type `tenure doctor`.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_a_number_and_a_host_without_a_port() {
        let read = |words: &[&str]| read_nodes(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        let nodes = read(&["2=b.example", "1=10.0.0.1", "3=::1"]).unwrap();
        assert_eq!(nodes.into_keys().collect::<Vec<_>>(), [1, 2, 3]);
        for bad in ["", "1", "1=", "=a", "0=a", "x=a", "1=a:7421", "1=[::1]", "1=a..b", "1=a b", "1=*.example"] {
            assert!(read(&[bad]).is_err(), "{bad:?}");
        }
        assert!(read(&["1=a", "1=b"]).is_err());
    }
}
