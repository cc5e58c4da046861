//! Agents that come and go: instances of services that are listed for as long as they live, and a local view of those that
//! are there.
//!
//! An agent registers, and is listed until its guard is dropped, or until it dies:
//!
//! ```no_run
//! # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
//! use tenure::registry::pushed;
//! use tenure::v1::Health;
//!
//! let listed = client
//!     .register("agents/planner")
//!     .endpoint("http://10.0.0.7:8080")
//!     .capability("gpu")
//!     .zone("fra1")
//!     .check(pushed("model"))
//!     .begin()
//!     .await?;
//! listed.status("model", Health::Passing, "loaded").await?;
//! // ... work, until somebody wants it to stop: no new work from here on, then it is gone.
//! listed.drain("stopping").await?;
//! listed.deregister().await?;
//! # Ok(()) }
//! ```
//!
//! Whoever needs one keeps a view, and asks nobody when there is work to give away:
//!
//! ```no_run
//! # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
//! let planners = client.discover("agents/planner").capabilities("gpu & !preview").near("fra1").view().await?;
//! match planners.pick() {
//!     Some(found) => println!("ask {} at {}", found.instance.id, found.endpoint()),
//!     None => println!("nobody is there"),
//! }
//! # Ok(()) }
//! ```

mod asking;
mod discovery;
mod life;
mod minder;
mod picking;
mod set;
mod view;

pub use asking::{RegisterAsk, pushed};
pub use discovery::Discovery;
pub use life::{Change, Changes, Registration};
pub use set::Found;
pub use view::View;
