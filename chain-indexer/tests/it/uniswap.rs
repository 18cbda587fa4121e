//! Our arithmetic of pools against the contracts that are deployed on public networks, fetched from npm: what we compute
//! is what a swap gives and takes, to the minor unit.

use crate::support::Scene;
use alloy::primitives::aliases::{I24, U24, U160};
use alloy::primitives::{Address, Bytes, I256, TxKind, U256};
use alloy::sol_types::SolCall;
use dvp_chain_indexer::checkup::{Defect, Expected, ExpectedPool, check_up};
use dvp_chain_indexer::contracts::{caller::PoolCaller, pool::ConstantProductPool, token::TestToken};
use dvp_chain_indexer::{ChainConfig, ChainPrices};
use dvp_core::chain::{PairReading, PoolReader as _};
use dvp_core::liquidity::PoolKind;
use dvp_domain::liquidity::average::History;
use dvp_domain::liquidity::curve::{Pool, SwapDirection, TickPool, tick_price};
use dvp_domain::money::{Minor, Ratio};
use dvp_sandbox::embedded::npm::{self, Package};
use dvp_sandbox::embedded::tools::Finder;
use serde_json::Value;

alloy::sol! {
    interface Factory {
        function createPair(address tokenA, address tokenB) external returns (address);
        function getPair(address tokenA, address tokenB) external view returns (address);
        function createPool(address tokenA, address tokenB, uint24 fee) external returns (address);
        function getPool(address tokenA, address tokenB, uint24 fee) external view returns (address);
    }

    interface Pair {
        function mint(address to) external returns (uint256);
        function swap(uint256 amount0Out, uint256 amount1Out, address to, bytes data) external;
    }

    interface Pool3 {
        function initialize(uint160 sqrtPriceX96) external;
        function increaseObservationCardinalityNext(uint16 next) external;
        function slot0() external view returns (uint160, int24, uint16, uint16, uint16, uint8, bool);
    }
}

/// The creation code of a contract of a package.
fn bytecode(name: &str, integrity: &'static str, file: &str) -> Vec<u8> {
    let package = Package { name: name.to_owned(), version: "1.0.1", integrity: Some(integrity) };
    let finder = Finder::machine();
    let npm = finder.npm.clone().expect("npm, which fetches the contracts");
    let path = npm::fetch(&npm, &finder.cache, &package).unwrap().join(file);
    let artifact: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let code = artifact["bytecode"].as_str().unwrap();
    code.parse::<Bytes>().unwrap().to_vec()
}

fn v2_factory() -> Vec<u8> {
    let integrity =
        "sha512-MtybtkUPSyysqLY2U210NBDeCHX+ltHt3oADGdjqoThZaFRDKwM6k1Nb3F0A3hk5hwuQvytFWhrWHOEq6nVJ8Q==";
    bytecode("@uniswap/v2-core", integrity, "build/UniswapV2Factory.json")
}

fn v3_factory() -> Vec<u8> {
    let integrity =
        "sha512-7pVk4hEm00j9tc71Y9+ssYpO6ytkeI0y7WE9P6UcmNzhxPePwyAxImuhVsTqWK9YFvzgtvzJHi64pBl4jUzKMQ==";
    bytecode("@uniswap/v3-core", integrity, "artifacts/contracts/UniswapV3Factory.sol/UniswapV3Factory.json")
}

struct Market {
    scene: Scene,
    prices: ChainPrices,
    /// In the order of their addresses.
    tokens: [Address; 2],
}

impl Market {
    async fn new() -> Self {
        let scene = Scene::of_yesterday().await;
        let mut tokens = [scene.token, scene.deploy_weth().await];
        tokens.sort_unstable();
        let prices = ChainPrices::over([scene.node.rpc_url().as_str()]).unwrap();
        Self { scene, prices, tokens }
    }

    async fn create(&self, code: Vec<u8>) -> Address {
        let receipt = self.scene.send(&self.scene.admin, TxKind::Create, code).await;
        receipt.contract_address.unwrap()
    }

    async fn mint(&self, token: Address, to: Address, amount: U256) {
        self.act(token, &TestToken::mintCall { to, amount }).await;
    }

    /// A call of the administrator.
    async fn act(&self, to: Address, call: &impl SolCall) {
        assert!(self.scene.succeeds(&self.scene.admin, to, call).await);
    }

    async fn balance(&self, token: Address, account: Address) -> U256 {
        self.scene.view(token, TestToken::balanceOfCall { account }).await
    }

    async fn pair(&self, pair: Address) -> PairReading {
        self.prices.pair(&pair.to_string()).await.unwrap()
    }

    /// Swaps an exact input through a pair: what we compute is taken out, and one unit more is refused.
    async fn swap_pair(&self, pair: Address, paid: usize, input: u128) {
        let read = self.pair(pair).await;
        let reserves = [Minor::new(read.state.reserve0), Minor::new(read.state.reserve1)];
        let ours = Pool::product(reserves[paid], reserves[1 - paid], 30).unwrap();
        let output = ours.forward(Minor::new(input)).unwrap();
        assert!(ours.inverse(output).unwrap() <= Minor::new(input));
        let maker = &self.scene.maker;
        let swap = |output: u128| {
            let mut out = [U256::ZERO; 2];
            out[1 - paid] = U256::from(output);
            let [first, second] = out;
            Pair::swapCall { amount0Out: first, amount1Out: second, to: maker.address(), data: Bytes::new() }
        };
        self.mint(self.tokens[paid], pair, U256::from(input)).await;
        let refused = self.scene.revert_of(maker.address(), pair, &swap(output.get() + 1)).await;
        assert!(refused.is_some(), "{input}: {output} is the most");
        if output.is_zero() {
            return;
        }
        let before = self.balance(self.tokens[1 - paid], maker.address()).await;
        assert!(self.scene.succeeds(maker, pair, &swap(output.get())).await, "{input} {output}");
        let after = self.balance(self.tokens[1 - paid], maker.address()).await;
        assert_eq!(after - before, U256::from(output.get()), "{input}");
    }

    /// Swaps and lets time pass; the average is that of the contract's own sums.
    async fn trade_in(&self, pair: Address) {
        let mut history = History::new(60);
        let first = self.pair(pair).await;
        let moment = first.state.at(first.block.time).unwrap();
        history.add(moment);
        for (paid, input) in
            [(0, 1_u128), (0, 3_019), (1, 12_345_678), (1, 999_999_999_999), (0, 40_000_000), (1, 7)]
        {
            self.swap_pair(pair, paid, input).await;
            self.scene.pass(20).await;
            let read = self.pair(pair).await;
            history.add(read.state.at(read.block.time).unwrap());
        }
        // The sums that we extend to a block are what the contract has after a trade in a block of that time.
        let before = self.pair(pair).await;
        let next = before.block.time + 5;
        self.scene.next_block_at(next).await;
        let sync = ConstantProductPool::syncCall {};
        assert!(self.scene.succeeds(&self.scene.maker, pair, &sync).await);
        let after = self.pair(pair).await;
        assert_eq!((after.block.time, u64::from(after.state.accumulated_at)), (next, next));
        assert_eq!(before.state.at(next).unwrap().prices, after.state.cumulative);
        let [there, _] = history.average().unwrap();
        let million = |ratio: Ratio| ratio.forward(Minor::new(1_000_000)).unwrap().amount.get();
        assert!(million(there) > 0);
    }
}

#[tokio::test]
async fn a_v2_pair_gives_what_we_compute_to_the_unit() {
    let market = Market::new().await;
    let factory = [v2_factory(), market.scene.admin.address().into_word().to_vec()].concat();
    let factory = market.create(factory).await;
    let [token_a, token_b] = market.tokens;
    let create = Factory::createPairCall { tokenA: token_a, tokenB: token_b };
    market.act(factory, &create).await;
    let pair = market.scene.view(factory, Factory::getPairCall { tokenA: token_a, tokenB: token_b }).await;
    market.mint(token_a, pair, U256::from(1_000_000_007_u64)).await;
    market.mint(token_b, pair, U256::from(3_000_000_000_001_u64)).await;
    let mint = Pair::mintCall { to: market.scene.admin.address() };
    market.act(pair, &mint).await;
    let read = market.pair(pair).await;
    assert_eq!((read.state.reserve0, read.state.reserve1), (1_000_000_007, 3_000_000_000_001));
    assert_eq!(read.tokens, market.tokens.map(|token| format!("{token:#x}")));
    market.trade_in(pair).await;
}

#[tokio::test]
async fn the_sandboxs_pool_speaks_the_interface_of_a_v2_pair() {
    let market = Market::new().await;
    let [token0, token1] = market.tokens;
    let arguments = [token0.into_word(), token1.into_word()].concat();
    let pair = market.create([ConstantProductPool::BYTECODE.to_vec(), arguments].concat()).await;
    market.mint(token0, pair, U256::from(1_000_000_007_u64)).await;
    market.mint(token1, pair, U256::from(3_000_000_000_001_u64)).await;
    market.act(pair, &ConstantProductPool::syncCall {}).await;
    market.trade_in(pair).await;
}

/// A pool of a spacing of 60 with positions, and the contract that pays for the swaps.
struct Concentrated {
    market: Market,
    pool: Address,
    caller: Address,
}

impl Concentrated {
    async fn new() -> Self {
        let market = Market::new().await;
        let factory = market.create(v3_factory()).await;
        let ([token_a, token_b], fee) = (market.tokens, U24::from(3_000));
        let create = Factory::createPoolCall { tokenA: token_a, tokenB: token_b, fee };
        market.act(factory, &create).await;
        let call = Factory::getPoolCall { tokenA: token_a, tokenB: token_b, fee };
        let pool = market.scene.view(factory, call).await;
        // A price of about 3000, between two ticks.
        let price = U160::from(54_u8) * (U160::from(1_u8) << 96) + U160::from(987_654_321_u64);
        let initialize = Pool3::initializeCall { sqrtPriceX96: price };
        market.act(pool, &initialize).await;
        let caller = market.create(PoolCaller::BYTECODE.to_vec()).await;
        for token in market.tokens {
            market.mint(token, caller, U256::from(1_u8) << 120).await;
        }
        let this = Self { market, pool, caller };
        // 1.0001^79760 is about 2908. Gaps, overlaps, and one whose end is a word's.
        for (lower, upper, amount) in [
            (79_200, 80_400, 5_000_000_000_u128),
            (79_740, 79_860, 90_000_000_007),
            (76_800, 79_260, 700_000_001),
            (80_460, 84_000, 1_234_567_890),
            (61_440, 92_160, 3_000_000),
        ] {
            let (lower, upper) = (I24::try_from(lower).unwrap(), I24::try_from(upper).unwrap());
            let call = PoolCaller::mintCall { pool, lower, upper, amount };
            this.market.act(caller, &call).await;
        }
        this
    }

    async fn read(&self, window: u32) -> dvp_core::chain::TicksReading {
        self.market.prices.ticks(&self.pool.to_string(), window).await.unwrap()
    }

    async fn ours(&self, direction: SwapDirection) -> TickPool {
        TickPool::new(&self.read(1).await.state, direction).unwrap()
    }

    fn call(&self, direction: SwapDirection, amount: I256) -> PoolCaller::swapCall {
        let (low, high) = (
            U160::from(4_295_128_740_u64),
            "1461446703485210103287273052203988822378723970341".parse::<U160>().unwrap(),
        );
        let (is_zero, limit) = match direction {
            SwapDirection::ZeroForOne => (true, low),
            SwapDirection::OneForZero => (false, high),
        };
        PoolCaller::swapCall { pool: self.pool, zeroForOne: is_zero, amount, limit }
    }

    /// What the pool takes and gives for an exact input, or for a negative exact output.
    async fn theirs(&self, direction: SwapDirection, amount: I256) -> (u128, u128) {
        let answer = self.market.scene.view(self.caller, self.call(direction, amount)).await;
        let (paid, given) = match direction {
            SwapDirection::ZeroForOne => (answer._0, answer._1),
            SwapDirection::OneForZero => (answer._1, answer._0),
        };
        (u128::try_from(paid).unwrap(), u128::try_from(-given).unwrap())
    }
}

fn signed(amount: u128) -> I256 {
    I256::try_from(amount).unwrap()
}

#[tokio::test]
async fn a_v3_pool_gives_and_takes_what_we_compute_to_the_unit() {
    let one = Concentrated::new().await;
    let mut crossed = 0;
    let both = [SwapDirection::ZeroForOne, SwapDirection::OneForZero];
    for round in 0..4_u32 {
        for direction in both {
            let ours = one.ours(direction).await;
            let whole = ours.exact_output(ours.depth()).unwrap().get();
            for part in [1_000_000_000, 10_000, 333, 50, 7, 3, 2, 1] {
                for input in [whole / part, whole / part + 1] {
                    let Some(output) = ours.forward(Minor::new(input)) else { continue };
                    if input > 0 {
                        let (paid, given) = one.theirs(direction, signed(input)).await;
                        assert_eq!((paid, given), (input, output.get()), "{direction:?} {input}");
                    }
                }
                let output = ours.depth().get() / part;
                if output > 0 {
                    let input = ours.exact_output(Minor::new(output)).unwrap().get();
                    let (paid, given) = one.theirs(direction, -signed(output)).await;
                    assert_eq!((paid, given), (input, output), "{direction:?} of {output}");
                }
            }
            // The next rounds begin between other ticks, in other liquidity.
            let input = whole / 10 * [9, 8, 7, 6][usize::try_from(round).unwrap()];
            let before = one.read(1).await.state.tick;
            let call = one.call(direction, signed(input));
            one.market.act(one.caller, &call).await;
            let state = one.read(1).await.state;
            let (low, high) = (before.min(state.tick), before.max(state.tick));
            crossed += state.net.range(low + 1..=high).count();
        }
    }
    assert!(crossed >= 8, "only {crossed} ticks were crossed");
}

#[tokio::test]
async fn the_average_of_a_v3_pool_needs_observations_over_the_window() {
    let one = Concentrated::new().await;
    let spot = one.read(1).await.state.tick;
    one.market.scene.pass(600).await;
    let read = one.read(600).await;
    assert_eq!(read.average_tick, Some(spot), "one observation reaches back while nobody trades");
    let near = |average: Ratio, ours: Ratio| {
        let million = |ratio: Ratio| ratio.forward(Minor::new(1_000_000_000)).unwrap().amount.get();
        million(average).abs_diff(million(ours)) * 100 < million(ours)
    };
    for direction in [SwapDirection::ZeroForOne, SwapDirection::OneForZero] {
        let average = tick_price(spot, direction).unwrap();
        assert!(near(average, one.ours(direction).await.spot()), "{direction:?}");
    }
    let trade = one.call(SwapDirection::ZeroForOne, signed(200_000));
    one.market.act(one.caller, &trade).await;
    assert_eq!(one.read(600).await.average_tick, None, "the trade overwrote the only observation");
    let grow = Pool3::increaseObservationCardinalityNextCall { next: 10 };
    one.market.act(one.pool, &grow).await;
    one.market.scene.pass(1).await;
    one.market.act(one.caller, &trade).await;
    one.market.scene.pass(700).await;
    let before = one.read(600).await;
    assert_eq!(before.average_tick, Some(before.state.tick));
    let trade = one.call(SwapDirection::ZeroForOne, signed(2_000_000));
    one.market.act(one.caller, &trade).await;
    let after = one.read(600).await;
    assert!(after.state.tick < before.state.tick - 10, "{} {}", after.state.tick, before.state.tick);
    let (average, was) = (after.average_tick.unwrap(), before.state.tick);
    assert!((was - 10..=was).contains(&average), "a trade moves the price, not the average: {average} {was}");
}

#[tokio::test]
async fn the_checks_of_a_chain_find_what_is_wrong_with_a_pool() {
    let one = Concentrated::new().await;
    let scene = &one.market.scene;
    one.market.scene.pass(600).await;
    let config = ChainConfig::development(&scene.node.rpc_url(), scene.deployment.clone());
    let [token0, token1] = one.market.tokens;
    let right = ExpectedPool {
        id: "pool".into(),
        address: one.pool,
        kind: PoolKind::UniswapV3,
        pairs: vec![(token1, token0)],
        window_secs: 600,
    };
    let found = async |pool: &ExpectedPool| {
        let expected = Expected { pools: vec![pool.clone()], ..Expected::default() };
        let findings = check_up(&config, &expected, scene.now().await).await;
        let about = findings.into_iter().find(|finding| finding.about == "pools").unwrap();
        about.found.map_err(|defect| (matches!(defect, Defect::Contradiction(_)), defect.to_string()))
    };
    let (is_contradiction, said) = found(&right).await.unwrap_err();
    assert!(!is_contradiction && said.contains("keeps 1 observations"), "{said}");
    let grow = Pool3::increaseObservationCardinalityNextCall { next: 1_000 };
    one.market.act(one.pool, &grow).await;
    assert_eq!(found(&right).await, Ok("tokens and averages of pool".to_owned()));
    let long = ExpectedPool { window_secs: 86_400, ..right.clone() };
    let (is_contradiction, said) = found(&long).await.unwrap_err();
    assert!(!is_contradiction && said.contains("do not reach back 86400 s"), "{said}");
    for (wrong, expected) in [
        (ExpectedPool { address: scene.maker.address(), ..right.clone() }, "there is no contract"),
        (ExpectedPool { pairs: vec![(token1, one.pool)], ..right.clone() }, "are no pair"),
    ] {
        let (is_contradiction, said) = found(&wrong).await.unwrap_err();
        assert!(is_contradiction && said.contains(expected), "{said}");
    }
}
