//! The cluster: who belongs to it, how each of them is doing, and who comes, goes and leads.

use super::members::{Asked, Votes};
use super::{Caller, backup, members, pki, server::Pong};
use crate::args::{Cluster, NodeAt};
use crate::failure::Failure;
use crate::page::{Cell, List, Row};
use crate::print;
use serde::Serialize;
use std::process::ExitCode;
use tenure::{Client, v1};

pub(crate) async fn cluster(caller: &Caller, asked: Cluster) -> Result<ExitCode, Failure> {
    match asked {
        Cluster::Status => status(caller).await,
        Cluster::Members => list(caller).await,
        Cluster::Add { node } => add(caller, node).await,
        Cluster::Remove { node } => remove(caller, node).await,
        Cluster::Transfer { node } => transfer(caller, node).await,
        Cluster::Pki(order) => pki::pki(caller.output, &order),
        Cluster::Keygen(keygen) => pki::keygen(caller.output, &keygen),
        Cluster::Backup { file } => backup::backup(caller, &file).await,
        Cluster::Restore { file, anew } => backup::restore(caller, &file, &anew).await,
        Cluster::Recover { from, skip_entry, anew } => {
            backup::recover(caller, &from, &skip_entry.into_iter().collect(), &anew).await
        }
    }
}

/// A node, by what the log says of it.
#[derive(Serialize)]
struct Member {
    node: u64,
    role: &'static str,
    leads: bool,
    peer_addr: String,
    client_addr: String,
}

impl Row for Member {
    const HEADINGS: &'static [&'static str] = &["NODE", "ROLE", "PEERS AT", "CLIENTS AT"];
    const EMPTY: &'static str = "this node belongs to no cluster yet";

    fn cells(&self) -> Vec<Cell> {
        let role = if self.leads { "leader" } else { self.role };
        let addresses = [print::or_dash(&self.peer_addr), print::or_dash(&self.client_addr)];
        [self.node.to_string(), role.into()].into_iter().chain(addresses).map(Cell::from).collect()
    }

    fn name(&self) -> String {
        self.node.to_string()
    }
}

fn rows(reply: &v1::MembersReply) -> Vec<Member> {
    let row = |member: &v1::Member| Member {
        node: member.node,
        role: if member.votes { "voter" } else { "learner" },
        leads: member.node == reply.leader,
        peer_addr: member.peer_addr.clone(),
        client_addr: member.client_addr.clone(),
    };
    reply.members.iter().map(row).collect()
}

async fn ask(client: &Client, what: &str) -> Result<v1::MembersReply, Failure> {
    client.members(v1::MembersRequest {}).await.map_err(|error| Failure::of(what, &error))
}

async fn list(caller: &Caller) -> Result<ExitCode, Failure> {
    let what = "cannot list the members";
    let reply = ask(&caller.connect(what).await?, what).await?;
    print::draw(caller.output, &List(rows(&reply)));
    Ok(ExitCode::SUCCESS)
}

/// A node, by its own word.
#[derive(Serialize)]
struct Report {
    /// What was said has it, too.
    #[serde(skip)]
    node: u64,
    state: &'static str,
    client_addr: String,
    /// Entries of the log that it has not applied yet, counted from the newest that anybody has.
    lag: Option<u64>,
    #[serde(flatten)]
    said: Said,
}

/// The status of a node, or why it could not be asked.
#[derive(Serialize)]
#[serde(untagged)]
enum Said {
    Status(Pong),
    Nothing { node: u64, why: String },
}

impl Row for Report {
    const HEADINGS: &'static [&'static str] =
        &["NODE", "STATE", "TERM", "APPLIED", "LAG", "SNAPSHOT", "LOG", "SERVICE TIME", "DROPPED", "AT"];
    const EMPTY: &'static str = "this node belongs to no cluster yet";

    fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![self.node.to_string(), self.state.into()];
        match &self.said {
            Said::Status(status) => cells.extend([
                status.term.to_string(),
                status.applied_index.to_string(),
                self.lag.unwrap_or_default().to_string(),
                status.snapshot_index.to_string(),
                format!("{} / {} KiB", status.log_entries, status.log_bytes.div_ceil(1024)),
                print::span_ms(status.now_ms),
                if status.leads { print::span_ms(status.dropped_ms) } else { "-".into() },
            ]),
            Said::Nothing { .. } => cells.extend((2..9).map(|_| String::from("-"))),
        }
        cells.push(print::or_dash(&self.client_addr));
        cells.into_iter().map(Cell::from).collect()
    }

    fn name(&self) -> String {
        self.node.to_string()
    }
}

/// Asks each member itself. One that does not answer is a line of the answer, not a failure.
async fn status(caller: &Caller) -> Result<ExitCode, Failure> {
    let what = "cannot see the cluster";
    let failed = |error| Failure::of(what, &error);
    let client = caller.connect(what).await?;
    let known = members::known(&client).await.map_err(failed)?;
    let own = client.status(v1::StatusRequest {}).await.map_err(failed)?;
    let asked = members::ask(known, &own).await;
    let statuses = || asked.iter().filter_map(|asked| asked.said.as_ref().ok());
    let newest = statuses().map(|status| status.last_index).max().unwrap_or_default();
    let report = |Asked { member, said }: &Asked| Report {
        node: member.node,
        state: match said {
            Err(_) => "unreachable",
            Ok(status) if status.leads => "leads",
            Ok(_) if !member.votes => "learns",
            Ok(status) if status.leader == 0 => "knows no leader",
            Ok(_) => "follows",
        },
        client_addr: member.client_addr.clone(),
        lag: said.as_ref().ok().map(|status| newest.saturating_sub(status.applied_index)),
        said: match said {
            Ok(status) => Said::Status(Pong::from(status)),
            Err(why) => Said::Nothing { node: member.node, why: why.clone() },
        },
    };
    let leads = statuses().any(|status| status.leads);
    let follows = statuses().find(|status| status.leader != 0).map(|status| status.leader);
    print::draw(caller.output, &List(asked.iter().map(report).collect::<Vec<_>>()));
    for Asked { member, said } in &asked {
        if let Err(why) = said {
            print::say(&format!("node {} could not be asked: {why}", member.node));
        }
    }
    say_how_many_answer(&Votes::count(&asked));
    match (leads, follows) {
        (true, _) => {}
        (false, Some(leader)) => print::say(&format!("node {leader} leads by the word of those that answer")),
        (false, None) => {
            print::say("no node says that it leads: nothing is granted, and no lease ends, until one is elected");
        }
    }
    Ok(if leads { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One node has no vote to lose, and needs no words.
fn say_how_many_answer(votes: &Votes) {
    let Votes { answer, all } = votes;
    if *all > 1 {
        let then = match votes.may_fail() {
            Some(0) => "none of them may fail".into(),
            Some(count) => format!("{count} of them may fail"),
            None => "this is no majority".into(),
        };
        print::say(&format!("{answer} of {all} voting members answer; {then}"));
    }
}

async fn add(caller: &Caller, NodeAt { node, address }: NodeAt) -> Result<ExitCode, Failure> {
    let request = v1::AddMemberRequest { node, peer_addr: address };
    let call = async |client: Client| client.add_member(request).await;
    change(caller, &format!("add node {node}"), &format!("node {node} has caught up and votes"), call).await
}

async fn remove(caller: &Caller, node: u64) -> Result<ExitCode, Failure> {
    let call = async |client: Client| client.remove_member(v1::RemoveMemberRequest { node }).await;
    let done = format!("node {node} is out; stop it and remove its data directory");
    change(caller, &format!("remove node {node}"), &done, call).await
}

async fn transfer(caller: &Caller, node: u64) -> Result<ExitCode, Failure> {
    let call = async |client: Client| client.transfer_lead(v1::TransferLeadRequest { node }).await;
    change(caller, &format!("hand the lead to node {node}"), &format!("node {node} leads"), call).await
}

/// Has the members changed, and shows who they are now.
async fn change(
    caller: &Caller,
    what: &str,
    done: &str,
    call: impl AsyncFnOnce(Client) -> Result<v1::MembersReply, tenure::Error>,
) -> Result<ExitCode, Failure> {
    let what = format!("cannot {what}");
    let reply = call(caller.connect(&what).await?).await.map_err(|error| Failure::of(&what, &error))?;
    print::say(done);
    print::draw(caller.output, &List(rows(&reply)));
    Ok(ExitCode::SUCCESS)
}
