//! The one binary of Tenure. Data goes to stdout, words to stderr; every error says what to do next.

mod args;
mod audit_log;
mod beside;
mod certificates;
mod clock;
mod commands;
mod config;
mod failure;
mod log;
mod page;
mod place;
mod print;
mod screen;
mod secure;
mod supervisor;
mod traces;
mod trial;
mod wrap;

use args::{Cli, Command, Output};
use commands::Caller;
use failure::Failure;
use std::process::ExitCode;

/// A server asks for much memory in small pieces, on several threads, and gives it back on others.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = wrap::part().or_else(trial::part) {
        return code;
    }
    let cli = Cli::read();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            return Failure::before(
                "cannot start",
                &error.to_string(),
                "Free some memory or threads: look with `ulimit -u`.",
            )
            .report();
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { command, addr, output: form } = cli;
    let output = match (&command, form.output()) {
        (Command::Discover(_), output) => output.unwrap_or(Output::Table),
        (_, Some(output)) => output,
        (_, None) => return Err(for_discover_alone()),
    };
    let caller = &Caller { addr, output };
    match command {
        Command::Serve(serve) => commands::serve(*serve).await,
        Command::Cluster(asked) => commands::cluster(caller, asked).await,
        Command::Config(config) => commands::config(output, config),
        Command::Explain(explain) => commands::explain(output, &explain),
        Command::Doctor(doctor) => commands::doctor(caller, doctor).await,
        Command::Completions(args) => commands::completions(&args),
        Command::Man(args) => commands::manual(&args),
        Command::Version => commands::version(output),
        Command::Ping => commands::ping(caller).await,
        Command::Run(run) => commands::run(caller, *run).await,
        Command::Elect(elect) => commands::elect(caller, *elect).await,
        Command::Once(once) => commands::once(caller, *once).await,
        Command::Acquire(acquire) => commands::acquire(caller, *acquire).await,
        Command::Renew(renew) => commands::renew(caller, renew).await,
        Command::Touch(touch) => commands::touch(caller, touch).await,
        Command::Release(release) => commands::release(caller, release).await,
        Command::Verify(verify) => commands::verify(caller, verify).await,
        Command::Break(order) => commands::break_claims(caller, order).await,
        Command::Transfer(transfer) => commands::transfer(caller, transfer).await,
        Command::Ls(ls) => commands::ls(caller, ls).await,
        Command::Show(show) => commands::show(caller, show).await,
        Command::Why(show) => commands::why(caller, show).await,
        Command::History(history) => commands::history(caller, history).await,
        #[cfg(feature = "tui")]
        Command::Top(top) => commands::top(caller, top).await,
        Command::Watch(watch) => commands::watch(caller, watch).await,
        Command::Resource(resource) => commands::resource(caller, resource).await,
        Command::Lease(lease) => commands::lease(caller, lease).await,
        Command::Class(class) => commands::class(caller, class).await,
        Command::Register(register) => commands::register(caller, *register).await,
        Command::Discover(discover) => commands::discover(caller, discover, form).await,
        Command::Deregister(deregister) => commands::deregister(caller, deregister).await,
        Command::Service(service) => commands::service(caller, service).await,
        Command::Key(key) => commands::key(caller, key).await,
    }
}

fn for_discover_alone() -> Failure {
    let why = "env, hosts, nginx and haproxy tell where instances are, and only `tenure discover` does";
    Failure::usage("cannot print in this form", why, "Say -o table, json, jsonl or name.")
}
