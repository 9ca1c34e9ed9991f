//! A proxy in front of an API server, for one client of it: stall, shift, count, hold and cut what that client does.

use std::sync::Arc;

use super::faults::Faults;
use super::http::Tls;
use super::proxy::{Backends, Proxy};
use super::{Cluster, Endpoint};

/// A running proxy. Passes `Authorization` on, so users with tokens are themselves; a client certificate ends here.
pub struct ApiProxy {
    proxy: Proxy,
    endpoint: Endpoint,
}

impl Cluster {
    /// A proxy in front of API server `number`, with a certificate of the cluster's authority.
    pub fn api_proxy(&self, number: usize) -> ApiProxy {
        let server = self.endpoint(number);
        let address = server.url.trim_start_matches("https://").to_owned();
        let backends = Backends::new(Tls::trusting(&server.authority_der).unwrap(), vec![address]);
        let proxy = Proxy::start(&self.authority().server(&[]).unwrap(), backends).unwrap();
        let endpoint = Endpoint {
            url: proxy.url(),
            ..server.clone()
        };
        ApiProxy { proxy, endpoint }
    }
}

impl ApiProxy {
    /// Where it is reached: for [`super::User::client`] and [`Cluster::kubeconfig_via`].
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What it does to requests.
    pub fn faults(&self) -> &Arc<Faults> {
        self.proxy.faults()
    }
}
