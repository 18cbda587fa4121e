//! The service itself, over a database and a chain that are there: wires the core to its two doors and to the chain.

use std::net::SocketAddr;
use std::sync::Arc;

use alloy::signers::local::PrivateKeySigner;
use anyhow::Context as _;
use dvp_api::delivery::{Delivery, DeliveryConfig};
use dvp_api::{Api, WebhookRules};
use dvp_chain_indexer::{ChainConfig, ChainPermitNonces};
use dvp_core::context::Context;
use dvp_core::engine::Engine;
use dvp_core::rails::simulated::SimulatedRails;
use dvp_core::store::PgPool;
use dvp_core::workflow;
use dvp_core::writer::Writer;
use dvp_fix_gateway::{DoorConfig, FixGateway, GatewayConfig};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// What a process of the service needs.
pub(crate) struct ServiceConfig {
    pub context: Context,
    pub chain: ChainConfig,
    pub relayer: PrivateKeySigner,
    pub http: SocketAddr,
    pub fix: SocketAddr,
    pub fix_gateway: GatewayConfig,
    /// Where FIX listens besides, with TLS.
    pub fix_tls: Option<(SocketAddr, DoorConfig)>,
    pub webhook_rules: WebhookRules,
    pub delivery: DeliveryConfig,
}

/// A running service. It serves until [`stop`](Service::stop).
pub(crate) struct Service {
    pub http: SocketAddr,
    pub fix: SocketAddr,
    pub fix_tls: Option<SocketAddr>,
    tasks: JoinSet<&'static str>,
    shutdown: CancellationToken,
    workers: watch::Sender<bool>,
}

impl Service {
    /// Binds both doors and starts every role.
    pub(crate) async fn start(pool: PgPool, config: ServiceConfig) -> anyhow::Result<Self> {
        let context = Arc::new(config.context);
        let permits = ChainPermitNonces::new(&config.chain.rpc_url, config.chain.deployment.permit)?;
        let (writer, writing) = Writer::start(pool.clone(), Arc::clone(&context));
        let engine = Engine::new(pool.clone(), writer, context, Arc::new(permits));
        let listener =
            TcpListener::bind(config.http).await.with_context(|| format!("REST on {}", config.http))?;
        let http = listener.local_addr()?;
        let (mut gateway, fix) =
            FixGateway::bind(config.fix, engine.clone(), pool.clone(), config.fix_gateway)
                .await
                .with_context(|| format!("FIX on {}", config.fix))?;
        let fix_tls = match config.fix_tls {
            Some((addr, door)) => {
                Some(gateway.listen(addr, door).await.with_context(|| format!("FIX with TLS on {addr}"))?)
            }
            None => None,
        };

        let shutdown = CancellationToken::new();
        let workers = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(named("writer", async { writing.await.unwrap_or(()) }));
        let rails = Arc::new(SimulatedRails::new(pool.clone()));
        let settling = workflow::run(engine.clone(), rails.clone(), rails, workers.subscribe());
        tasks.spawn(named("settlement workflow", settling));
        let liquidity = Arc::clone(&engine.context().liquidity);
        tasks.spawn(named("liquidity", liquidity.run(pool.clone(), workers.subscribe())));
        let older = dvp_core::legacy::run(engine.clone(), workers.subscribe());
        tasks.spawn(named("older orders", older));
        let indexing = dvp_chain_indexer::run_indexer(pool.clone(), config.chain.clone(), shutdown.clone());
        tasks.spawn(named("indexer", logged("indexer", indexing)));
        let relaying = dvp_chain_indexer::run_relayer(pool, config.chain, config.relayer, shutdown.clone());
        tasks.spawn(named("relayer", logged("relayer", relaying)));
        tasks.spawn(named("FIX", gateway.run(shutdown.clone())));
        let delivery = Delivery::new(engine.clone(), config.delivery).context("webhook delivery")?;
        tasks.spawn(named("webhook delivery", delivery.run(shutdown.clone())));
        let api = Api::new(engine).with_webhook_rules(config.webhook_rules);
        let api = dvp_api::serve(listener, api, shutdown.clone());
        tasks.spawn(named("REST", logged("REST", api)));
        Ok(Self { http, fix, fix_tls, tasks, shutdown, workers })
    }

    /// Waits for a part to end, which none does by itself. Returns its name.
    pub(crate) async fn part_ended(&mut self) -> &'static str {
        match self.tasks.join_next().await {
            Some(Ok(name)) => name,
            Some(Err(error)) => {
                error!(%error, "a part of the service failed");
                "a failed part"
            }
            None => "everything",
        }
    }

    /// Closes the doors, finishes the work in hand, ends every part.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        self.workers.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        info!("service stopped");
    }
}

async fn named(name: &'static str, part: impl Future<Output = ()>) -> &'static str {
    part.await;
    name
}

async fn logged<E: std::fmt::Display>(name: &'static str, part: impl Future<Output = Result<(), E>>) {
    if let Err(error) = part.await {
        error!(%error, part = name, "ended");
    }
}
