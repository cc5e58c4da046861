//! What befalls the network, as drawn: machines that do not hear each other, and messages that are late, lost or repeated.

use crate::dice::Dice;
use crate::fault::Fault;
use crate::machine::Site;
use crate::net::Weather;
use std::time::Duration;
use tokio::time::sleep;

pub(crate) struct Storm {
    pub(crate) site: Site,
    pub(crate) dice: Dice,
    pub(crate) until: Duration,
}

impl Storm {
    pub(crate) async fn rage(self) {
        while self.site.now() < self.until {
            sleep(self.dice.ms(200, 4_000)).await;
            match self.dice.between(0, 3) {
                0 => self.split(),
                1 => self.deafen(),
                2 => self.part(),
                _ => self.disturb(),
            }
            sleep(self.dice.ms(200, 8_000)).await;
            self.site.net.mend();
            self.site.net.set_weather(Weather::CALM);
            self.site.note("the network is whole");
        }
    }

    /// Two machines, in the order in which they were drawn.
    fn pair(&self) -> (usize, usize) {
        let machines = self.site.net.machines() as u64;
        let (a, step) = (self.dice.between(0, machines - 1), self.dice.between(1, machines - 1));
        (a as usize, ((a + step) % machines) as usize)
    }

    /// Two halves, neither of them empty.
    fn split(&self) {
        let machines = self.site.net.machines();
        let sides = self.dice.between(1, (1 << machines) - 2);
        let side = |machine: usize| sides >> machine & 1;
        let pairs = (0..machines).flat_map(|a| (0..machines).map(move |b| (a, b)));
        let apart: Vec<_> = pairs.filter(|(a, b)| side(*a) != side(*b)).collect();
        self.site.tally.count(Fault::Partition);
        self.site.note(&format!("the network falls apart: {apart:?}"));
        self.site.net.cut(apart);
    }

    fn deafen(&self) {
        let (a, b) = self.pair();
        self.site.tally.count(Fault::OneWayCut);
        self.site.note(&format!("machine {b} does not hear machine {a}"));
        self.site.net.cut([(a, b)]);
    }

    fn part(&self) {
        let (a, b) = self.pair();
        self.site.tally.count(Fault::PartialCut);
        self.site.note(&format!("machines {a} and {b} do not hear each other"));
        self.site.net.cut([(a, b), (b, a)]);
    }

    fn disturb(&self) {
        let weather = Weather {
            delay_ms_max: self.dice.between(20, 400),
            loses_one_in: self.dice.between(4, 40),
            repeats_one_in: self.dice.between(2, 20),
        };
        self.site.note(&format!("{weather:?}"));
        self.site.net.set_weather(weather);
    }
}
