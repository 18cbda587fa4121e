import { DvpError } from './errors.js'
import type { AssetDescriptor, Chain, Permit } from './api.js'

type Hex = `0x${string}`

/** The EIP-712 typed data of a permit. */
export interface PermitTypedData {
  domain: { name: string; version: string; chainId: number; verifyingContract: Hex }
  primaryType: 'PermitSingle'
  // The types of viem work out the domain by the type of its fields, which are plain texts here.
  types: { EIP712Domain: any; PermitSingle: { name: string; type: string }[] }
  message: { token: Hex; amount: string; spender: Hex; nonce: string; deadline: number }
}

/**
 * Signs typed data with the key of a wallet.
 *
 * viem: `account.signTypedData`;
 * ethers: `({ domain, types, message }) => wallet.signTypedData(domain, { PermitSingle: types.PermitSingle }, message)`.
 */
export type Signer = (data: PermitTypedData) => Promise<string>

export interface PermitOptions {
  /** The intent's input, with the token's address. */
  asset: AssetDescriptor
  /** The most that may be taken: the intent's input. */
  amountMinor: string | bigint
  /** The wallet that pays. */
  owner: string
  sign: Signer
  /** The wallet's next nonce; without it the service is asked. */
  nonce?: string | bigint | number
  /** Unix seconds; six hours ahead without it. */
  deadline?: number
}

const field = (name: string, type: string) => ({ name, type })

export function permitTypedData(
  chain: Chain, token: string, amountMinor: string, nonce: string, deadline: number,
): PermitTypedData {
  const { name, version, chainId, verifyingContract } = chain.permitDomain
  const spender = chain.contracts.escrow
  return {
    domain: { name, version, chainId, verifyingContract: verifyingContract as Hex },
    primaryType: 'PermitSingle',
    types: {
      EIP712Domain: [
        field('name', 'string'), field('version', 'string'), field('chainId', 'uint256'),
        field('verifyingContract', 'address'),
      ],
      PermitSingle: [
        field('token', 'address'), field('amount', 'uint256'), field('spender', 'address'), field('nonce', 'uint256'),
        field('deadline', 'uint256'),
      ],
    },
    message: { token: token as Hex, amount: amountMinor, spender: spender as Hex, nonce, deadline },
  }
}

/** The chain that an asset is on. A token without one is that of the only chain. */
export function chainOf(asset: AssetDescriptor, chains: readonly Chain[]): Chain {
  const found = asset.chain == null ? chains : chains.filter((chain) => chain.name === asset.chain)
  const [chain] = found
  if (chain === undefined || found.length > 1) throw new DvpError('asset.chain has to name one of the chains')
  return chain
}

export async function signPermit(
  chain: Chain, options: PermitOptions, nowMs: number, nextNonce: () => Promise<string>,
): Promise<Permit> {
  const { asset, sign } = options
  if (asset.address == null) throw new DvpError('asset.address has to be the token that is paid with')
  const nonce = options.nonce ?? (await nextNonce())
  const deadline = options.deadline ?? Math.floor(nowMs / 1_000) + 6 * 3_600
  const data = permitTypedData(chain, asset.address, String(options.amountMinor), String(nonce), deadline)
  const signature = await sign(data)
  if (!/^0x([0-9a-fA-F]{2}){65,2048}$/.test(signature)) throw new DvpError('the signer gives no signature of 65 bytes or more')
  const { token, amount, spender } = data.message
  return { token, amountMinor: amount, spender, nonce: data.message.nonce, deadline, signature }
}
