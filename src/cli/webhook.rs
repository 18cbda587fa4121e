//! `dvp webhook …`

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{GivenSecret, PlaceArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum WebhookCommand {
    /// Receive deliveries: print them, verify their signatures, pass them on.
    ///
    /// With --dir it registers itself at the sandbox, which must run with --webhook-allow-private, as the seeded
    /// partner's endpoint. Without, give the endpoint's secret, and let something that ends TLS lead to it.
    #[command(
        after_help = "Example:\n  dvp webhook listen --dir .dvp --forward-to http://127.0.0.1:3000/hook"
    )]
    Listen(WebhookListen),
    /// Have an event sent to the endpoint: `test.ping`, or a made-up one of any type.
    #[command(after_help = "Example:\n  dvp webhook trigger payout.failed --dir .dvp")]
    Trigger(WebhookTrigger),
    /// Check the signature of a delivery. Exit code 1 when it is not genuine.
    #[command(
        after_help = "Example:\n  dvp webhook verify --secret env:WEBHOOK_SECRET --signature t=1767225600,v1=… --file body.json"
    )]
    Verify(WebhookVerify),
    /// List endpoints and how they are.
    #[command(after_help = "Example:\n  dvp webhook endpoints --dir .dvp --json")]
    Endpoints(PlaceArgs),
    /// List an endpoint's deliveries, latest first, with every attempt.
    #[command(after_help = "Example:\n  dvp webhook deliveries --endpoint-id ep_… --state failed --dir .dvp")]
    Deliveries(WebhookDeliveries),
    /// List the notices to owners of endpoints, latest first.
    #[command(after_help = "Example:\n  dvp webhook notices --dir .dvp")]
    Notices(PlaceArgs),
    /// Give an endpoint to another key of the same partner and environment, such as the one that follows it.
    #[command(after_help = "Example:\n  dvp webhook move --from key_… --to key_… --dir .dvp")]
    Move(WebhookMove),
    /// Stop deliveries to an endpoint. Its partner can activate it again; revoke the key of one that it does not trust.
    #[command(
        after_help = "Example:\n  dvp webhook disable ep_… --operator jo --reason 'unknown host' --dir .dvp"
    )]
    Disable(WebhookDisable),
}

#[derive(Debug, Args)]
pub(crate) struct WebhookListen {
    /// The directory of a running sandbox.
    #[arg(long, value_name = "DIR", required_unless_present = "secret")]
    pub dir: Option<PathBuf>,
    /// The endpoint's signing secret: env:NAME, file:PATH, or - for a line of standard input. The secret itself is
    /// taken with a warning.
    #[arg(long, value_name = "WHSEC", conflicts_with = "dir")]
    pub secret: Option<GivenSecret>,
    /// Where to listen; port 0 takes any free port. TLS with --dir, plain HTTP without.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Where genuine deliveries are passed on to; its answer is given back. 200 without.
    #[arg(long, value_name = "URL")]
    pub forward_to: Option<String>,
    /// Subscribe to these types only.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub types: Vec<String>,
    /// Print one line of JSON for each delivery.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookTrigger {
    /// An event type of the contract.
    pub kind: String,
    /// The directory of a running sandbox, for its address and its partner's key.
    #[arg(long, value_name = "DIR", required_unless_present = "base_url")]
    pub dir: Option<PathBuf>,
    /// The service's address, such as `https://api.example.com`.
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// A test key: env:NAME, file:PATH, or - for a line of standard input; the environment's DVP_API_KEY when not
    /// given. The key itself is taken with a warning.
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<GivenSecret>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookVerify {
    /// The endpoint's signing secret, as issued: env:NAME, file:PATH, or - for a line of standard input. The secret
    /// itself is taken with a warning.
    #[arg(long, value_name = "WHSEC")]
    pub secret: GivenSecret,
    /// The value of the header Svc-Signature.
    #[arg(long)]
    pub signature: String,
    /// The raw body; - reads standard input.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// How far t may be from the clock, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = dvp_api::delivery::signature::TOLERANCE_SECS)]
    pub tolerance: u64,
    /// Another time than now, in Unix seconds.
    #[arg(long, value_name = "SECONDS")]
    pub at: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookDeliveries {
    #[arg(long)]
    pub endpoint_id: String,
    /// pending, delivered or failed.
    #[arg(long)]
    pub state: Option<String>,
    /// Only this event's.
    #[arg(long)]
    pub event_id: Option<String>,
    #[arg(long, default_value_t = 20)]
    pub limit: u16,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookDisable {
    pub endpoint_id: String,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Why.
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookMove {
    /// The key that has the endpoint.
    #[arg(long, value_name = "KEY_ID")]
    pub from: String,
    /// The key that is to have it.
    #[arg(long, value_name = "KEY_ID")]
    pub to: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}
