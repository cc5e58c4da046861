//! Changes of the members: admitting, removing, announcing an address, handing the lead on. Any node may be asked; the
//! leader does it.

use crate::limits::{ADDRESS_BYTES_MAX, CATCH_UP_TIMEOUT, HELLO_TRIES, PEER_PATIENCE_SHORT, PEERS_MAX, TICK};
use crate::node::Node;
use crate::peers::v1;
use crate::peers::v1::answer::Body as Tell;
use crate::peers::v1::change::Body as Change;
use crate::peers::v1::question::Body as Ask;
use crate::raft::{CannotChange, Member};
use std::io::ErrorKind;

impl Node {
    /// Changes the members through whoever leads.
    pub(crate) async fn change(&self, change: Change) -> Result<Vec<v1::Standing>, CannotChange> {
        match self.consensus().leader() {
            Some(leader) if leader == self.identity().node => {
                self.change_here(change).await?;
                Ok(self.standings())
            }
            Some(leader) => {
                // To let in who is in, or to hand the lead to who leads, changes nothing.
                let is_repeatable = matches!(change, Change::Admit(_) | Change::TransferTo(_));
                let ask = Ask::Change(v1::Change { body: Some(change) });
                let patience = CATCH_UP_TIMEOUT + PEER_PATIENCE_SHORT;
                match self.consensus().book().ask(leader, ask, patience).await {
                    Ok(Tell::Done(done)) => Ok(done.members),
                    Ok(_) => Err(CannotChange::Refused("the leader's answer is to another question".into())),
                    Err(error) if error.kind() == ErrorKind::Other => Err(CannotChange::Refused(error.to_string())),
                    // Whoever is not there, or does not lead, has done nothing.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ConnectionRefused) =>
                    {
                        Err(CannotChange::NotNow(format!("{error}; nothing was changed; ask again")))
                    }
                    Err(error) if is_repeatable => {
                        Err(CannotChange::NotNow(format!("the leader did not answer ({error}); ask again")))
                    }
                    Err(error) => Err(CannotChange::Refused(format!(
                        "the leader did not answer ({error}); whether it was done is not known; look at the members"
                    ))),
                }
            }
            None => Err(CannotChange::NotNow("no node leads at the moment; nothing was changed; ask again".into())),
        }
    }

    /// Changes the members as their leader.
    pub(crate) async fn change_here(&self, change: Change) -> Result<(), CannotChange> {
        match change {
            Change::Admit(admit) => self.admit(admit.node, &admit.peer_addr).await,
            Change::Announce(member) => self.set_member(member).await,
            Change::Remove(node) => self.remove(node).await,
            Change::TransferTo(node) => self.transfer(node).await,
        }
    }

    async fn admit(&self, id: u64, address: &str) -> Result<(), CannotChange> {
        if id == 0 || address.len() > ADDRESS_BYTES_MAX || !address.contains(':') {
            let text = "a node joins by a number from 1 on and an address of host and port; nothing was changed";
            return Err(CannotChange::Refused(text.into()));
        }
        if self.consensus().book().members().len() >= PEERS_MAX {
            return Err(CannotChange::Refused(format!("a cluster has at most {PEERS_MAX} nodes; nothing was changed")));
        }
        if self.member().peer_addr.is_empty() {
            let text =
                "the leader does not say where peers reach it; nothing was changed. Start it with --peer-advertise";
            return Err(CannotChange::Refused(text.into()));
        }
        let book = self.consensus().book();
        let hello = || book.ask_at(address, (0, 0), Ask::Hello(v1::Hello {}), PEER_PATIENCE_SHORT);
        let mut answer = hello().await;
        // Whoever types both in one go has just started it.
        for _ in 1..HELLO_TRIES {
            if answer.is_ok() {
                break;
            }
            tokio::time::sleep(TICK).await;
            answer = hello().await;
        }
        let hello = answer.map_err(|error| {
            CannotChange::Refused(format!(
                "no node answers at {address} ({error}); nothing was changed. Start it first, with \
                 tenure serve --node-id {id} --join {}",
                self.member().peer_addr
            ))
        })?;
        let Tell::Hello(v1::HelloReply { member: Some(member), cluster, .. }) = hello else {
            return Err(CannotChange::Refused(format!("what answers at {address} is no node of this build")));
        };
        if member.node != id {
            let text = format!("node {} answers at {address}, not node {id}; nothing was changed", member.node);
            return Err(CannotChange::Refused(text));
        }
        let ours = self.identity().cluster;
        if cluster != 0 && cluster != ours {
            let text = format!(
                "node {id} at {address} belongs to another cluster ({cluster:016x}); nothing was changed. Give it an \
                 empty data directory"
            );
            return Err(CannotChange::Refused(text));
        }
        let member = Member::from(member);
        if let Some(known) = book.member(id)
            && known.incarnation != member.incarnation
        {
            let text = format!(
                "node {id} is a member with another data directory, and must not vote as its old self; nothing was \
                 changed. Type tenure cluster remove {id} first"
            );
            return Err(CannotChange::Refused(text));
        }
        let adopt = Ask::Adopt(v1::Adopt { cluster: ours });
        let adopted = book.ask_at(address, (id, member.incarnation), adopt, PEER_PATIENCE_SHORT).await;
        adopted
            .map_err(|error| CannotChange::Refused(format!("node {id} did not join: {error}; nothing was changed")))?;
        self.consensus().admit(id, member, CATCH_UP_TIMEOUT).await
    }

    async fn set_member(&self, member: v1::Member) -> Result<(), CannotChange> {
        let (id, member) = (member.node, Member::from(member));
        match self.consensus().book().member(id) {
            Some(known) if known.incarnation == member.incarnation => self.consensus().set_member(id, member).await,
            _ => Err(CannotChange::Refused(format!("node {id} is not a member with this data directory"))),
        }
    }

    async fn remove(&self, id: u64) -> Result<(), CannotChange> {
        let members = self.consensus().book().members();
        if !members.contains_key(&id) {
            return Err(CannotChange::Refused(format!("node {id} is no member; nothing was changed")));
        }
        if self.consensus().voters() == [id] {
            return Err(CannotChange::Refused(format!("node {id} is the last voter; nothing was changed")));
        }
        self.consensus().remove(id).await
    }

    async fn transfer(&self, id: u64) -> Result<(), CannotChange> {
        if !self.consensus().voters().contains(&id) {
            return Err(CannotChange::Refused(format!("node {id} is no voter; nothing was changed")));
        }
        // A leader that hands over stops leading, so whoever is to lead must be there and have the log.
        let hello = Ask::Hello(v1::Hello {});
        if id != self.identity().node && self.consensus().book().ask(id, hello, PEER_PATIENCE_SHORT).await.is_err() {
            return Err(CannotChange::Refused(format!("node {id} does not answer; nothing was changed")));
        }
        match self.consensus().transfer(id).await {
            true => Ok(()),
            false => Err(CannotChange::Refused(format!("node {id} did not take the lead; look who leads"))),
        }
    }
}
