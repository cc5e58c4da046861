//! Runs a keeper as a task, over simulated links. It carries out what the keeper says, and decides nothing.

use super::judge::Judge;
use super::wire::{Ends, Uplink};
use std::collections::BTreeMap;
use tenure::clock::Clock;
use tenure::sans_io::{Keeper, LinkId, News, OrderQueue, Output};
use tenure::v1::Request;
use tokio::sync::mpsc;

/// Requests that wait to be sent on one link, and news that wait to be taken.
const QUEUED_MAX: usize = 1024;

pub(super) struct Runner {
    number: usize,
    keeper: Keeper,
    orders: OrderQueue,
    clock: Clock,
    uplink: Uplink,
    judge: Judge,
    links: BTreeMap<LinkId, mpsc::Sender<Request>>,
    bring: mpsc::Sender<(LinkId, News)>,
    news: mpsc::Receiver<(LinkId, News)>,
}

impl Runner {
    pub(super) fn new(
        number: usize,
        keeper: Keeper,
        orders: OrderQueue,
        clock: Clock,
        uplink: Uplink,
        judge: Judge,
    ) -> Self {
        let (bring, news) = mpsc::channel(QUEUED_MAX);
        judge.begins(number, uplink.clone());
        Self { number, keeper, orders, clock, uplink, judge, links: BTreeMap::new(), bring, news }
    }

    /// Works until nothing can be ordered any longer and nothing is left to be given back.
    pub(super) async fn run(mut self) {
        let mut is_open = true;
        while is_open || self.keeper.is_busy() {
            let due = self.keeper.due();
            let (mut brought, mut ordered) = (None, None);
            tokio::select! {
                biased;
                () = self.clock.until(due) => {}
                news = self.news.recv() => brought = news,
                order = self.orders.next(), if is_open => match order {
                    Some(order) => ordered = Some(order),
                    None => is_open = false,
                },
            }
            self.uplink.runs().await;
            let now = self.clock.now();
            if let Some((link, news)) = brought {
                self.keeper.hear(link, news, now);
            }
            if let Some(order) = ordered {
                self.keeper.follow(order, now);
            }
            self.keeper.act(now);
            self.carry_out();
            self.judge.compare();
        }
        self.judge.ends(self.number);
    }

    fn carry_out(&mut self) {
        for output in self.keeper.outputs() {
            match output {
                Output::Open { link, to } => {
                    let (requests, unsent) = mpsc::channel(QUEUED_MAX);
                    self.links.insert(link, requests);
                    let ends = Ends { requests: unsent, bring: self.bring.clone() };
                    tokio::spawn(self.uplink.clone().carry(link, to.name().into(), ends));
                }
                Output::Send { link, request } => {
                    let id = request.id;
                    if self.links.get(&link).is_none_or(|requests| requests.try_send(request).is_err()) {
                        self.keeper.not_sent(id);
                    }
                }
                Output::Close { link } => drop(self.links.remove(&link)),
                Output::Spawn(beside) => drop(tokio::spawn(beside)),
            }
        }
    }
}
