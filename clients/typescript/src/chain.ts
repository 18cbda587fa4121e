import { ChainError } from './errors.js'
import { isObject, reason } from './transport.js'
import type { Chain } from './api.js'

/** The nodes that are asked, by the name of their chain: `{ base: 'https://…' }`. */
export type RpcUrls = Readonly<Record<string, string>>

export type Rpc = (method: string, params: readonly unknown[]) => Promise<unknown>

/** Calls of a chain's node, once it is known to be one of that chain. */
export async function nodeOf(chain: Chain, rpcUrls: RpcUrls, fetcher: typeof fetch = fetch): Promise<Rpc> {
  const url = Object.hasOwn(rpcUrls, chain.name) ? rpcUrls[chain.name] : undefined
  if (url === undefined) throw new ChainError(`no node of the chain ${chain.name} is given`)
  const rpc: Rpc = async (method, params) => {
    // The address of a node often contains its key, so no message has it.
    const failed = (why: string) => new ChainError(`the node of ${chain.name} fails at ${method}: ${why}`)
    let answer: unknown
    try {
      const response = await fetcher(url, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
        redirect: 'error',
        signal: AbortSignal.timeout(15_000),
      })
      answer = await response.json()
    } catch (error) {
      throw failed(reason(error))
    }
    if (!isObject(answer) || answer['result'] === undefined) {
      const said = isObject(answer) && isObject(answer['error']) ? answer['error']['code'] : undefined
      throw failed(typeof said === 'number' ? `error ${said}` : 'it gives no result')
    }
    return answer['result']
  }
  const id = quantity(await rpc('eth_chainId', []))
  if (id !== BigInt(chain.chainId)) throw new ChainError(`the node of ${chain.name} is one of the chain ${id}`)
  return rpc
}

export function quantity(value: unknown): bigint {
  if (typeof value !== 'string' || !/^0x[0-9a-fA-F]+$/.test(value)) throw new ChainError('a node gives no number')
  return BigInt(value)
}

/** An address as 32 bytes. */
export function word(address: string): string {
  if (!/^0x[0-9a-fA-F]{40}$/.test(address)) throw new ChainError('an address has 40 hex digits')
  return address.slice(2).toLowerCase().padStart(64, '0')
}
