//! One server: its doors, its disk, its clients, and what it does when it is killed or stands still.

mod certificates;
mod client;
mod embedded;
mod http;
mod http_bad_input;
mod kill9;
mod other_cluster;
mod poison;
mod secure;
mod stalls;
mod support;
mod ten_thousand;
mod wire;
