//! Producers and consumers together: encrypted, and as the builders of the crate make them.

use crate::consumers::take;
use crate::messages::make_headers;
use crate::producers::producer;
use crate::{ROOT, ok};
use bytes::Bytes;
use iggy::prelude::*;
use std::sync::Arc;

const KEY: [u8; 32] = [7; 32];

pub async fn run(client: &IggyClient, address: &str) {
    encrypt(client).await;
    build_both(client, address).await;
}

async fn encrypt(client: &IggyClient) {
    let key = Aes256GcmEncryptor::new(&KEY).expect("32 bytes");
    let encryptor = Arc::new(EncryptorKind::Aes256Gcm(key));
    ok!("producer: encrypted, with headers", async {
        let made = producer(client, "secret")?.encryptor(encryptor.clone());
        let made = made.partitioning(Partitioning::partition_id(0)).build();
        made.init().await?;
        let payload = Bytes::from_static(b"unread");
        let message = IggyMessage::builder().payload(payload).user_headers(make_headers()).build();
        made.send(vec![message?]).await
    });
    ok!(
        "consumer: encrypted, with headers",
        async {
            let made = client.consumer("secret", "high", "secret", 0)?;
            // Commits by polls are not for what may fail to be decrypted.
            let made = made.encryptor(encryptor.clone()).auto_commit(AutoCommit::Disabled);
            let made = made.auto_commit(AutoCommit::Disabled);
            let mut made = made.polling_strategy(PollingStrategy::first()).build();
            made.init().await?;
            let taken = take(&mut made, 1).await?;
            made.shutdown().await?;
            let message = &taken[0].message;
            Ok((message.payload.clone(), message.user_headers_map()?))
        },
        |(payload, headers)| *payload == "unread" && *headers == Some(make_headers())
    );
}

async fn build_both(client: &IggyClient, address: &str) {
    let words = format!("iggy://{}:{}@{address}", ROOT.0, ROOT.1);
    let now = IggyDuration::from(1000);
    let config = IggyStreamConfig::from_stream_topic("high", "built", 100, now, now);
    let config = config.expect("names");
    ok!(
        "IggyStream.build",
        async {
            let (to, mut from) = IggyStream::build(client, &config).await?;
            to.send_one("one".into()).await?;
            let taken = take(&mut from, 1).await?;
            from.shutdown().await?;
            Ok(taken.len())
        },
        |count| *count == 1
    );
    ok!("IggyStream.with_client_from_connection_string", async {
        let (other, to, mut from) =
            IggyStream::with_client_from_connection_string(&words, &config).await?;
        to.send_one("two".into()).await?;
        from.shutdown().await?;
        other.shutdown().await
    });
    ok!("IggyStreamProducer.with_client_from_url", async {
        let of = config.producer_config();
        let (other, to) = IggyStreamProducer::with_client_from_url(&words, of).await?;
        to.send_one("three".into()).await?;
        other.shutdown().await
    });
    ok!(
        "IggyStreamConsumer.with_client_from_url",
        async {
            let of = config.consumer_config();
            let (other, mut from) = IggyStreamConsumer::with_client_from_url(&words, of).await?;
            let taken = take(&mut from, 1).await?;
            from.shutdown().await?;
            other.shutdown().await?;
            Ok(taken.len())
        },
        |count| *count == 1
    );
}
