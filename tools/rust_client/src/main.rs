//! Every call of the crate `iggy` against one node, over TCP: `rust_client 127.0.0.1:8090`.
//!
//! The node is a new one, with the root user of `headrace dev`. Each call is a line of the output
//! (`report.rs`); what it is called begins with the name of the method.

mod both;
mod consumers;
mod groups;
mod messages;
mod producers;
mod report;
mod resources;
mod sessions;
mod users;

use iggy::prelude::*;

pub const ROOT: (&str, &str) = ("iggy", "iggy");

pub fn named(name: &str) -> Identifier {
    Identifier::named(name).expect("a name of this program")
}

/// Gives a client that is neither connected nor logged in.
pub fn make_client(address: &str) -> IggyClient {
    IggyClientBuilder::new()
        .with_tcp()
        .with_server_address(address.to_owned())
        .with_reconnection_max_retries(Some(3))
        .build()
        .expect("an address")
}

/// Gives a client that is connected and logged in as root.
pub async fn make_root(address: &str) -> Result<IggyClient, IggyError> {
    let client = make_client(address);
    client.connect().await?;
    client.login_user(ROOT.0, ROOT.1).await?;
    Ok(client)
}

#[tokio::main]
async fn main() {
    let address = std::env::args().nth(1).expect("the address of a node");
    sessions::run(&address).await;
    let Some(client) = ok!("connect: for the rest", make_root(&address)) else {
        return;
    };
    resources::run(&client).await;
    messages::run(&client).await;
    groups::run(&client, &address).await;
    users::run(&client, &address).await;
    producers::run(&client).await;
    consumers::run(&client).await;
    both::run(&client, &address).await;
    ok!("delete_stream: of the producers", client.delete_stream(&named("high")));
    ok!("delete_stream: at the end", client.delete_stream(&named("rust")));
    ok!("shutdown", client.shutdown());
}
