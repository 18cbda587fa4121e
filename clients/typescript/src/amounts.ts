import type { AssetDescriptor } from './api.js'

/** `'12.5'` with the exponent 2 is `'1250'`. Digits beyond the exponent are refused: nothing is rounded. */
export function toMinor(decimal: string, exponent: number): string {
  checkExponent(exponent)
  if (typeof decimal !== 'string') throw new TypeError('an amount is a text such as "12.50", never a number')
  const parts = /^([0-9]+)(?:\.([0-9]+))?$/.exec(decimal)
  if (parts === null) throw new RangeError(`${JSON.stringify(decimal)} is not an amount such as "12.50"`)
  const [, whole = '', fraction = ''] = parts
  if (fraction.length > exponent) throw new RangeError(`${decimal} has more than ${exponent} decimal places`)
  return BigInt(whole + fraction.padEnd(exponent, '0')).toString()
}

/** `'1250'` with the exponent 2 is `'12.50'`. */
export function fromMinor(minor: string | bigint, exponent: number): string {
  checkExponent(exponent)
  const text = String(minor)
  if (typeof minor === 'number' || !/^[0-9]+$/.test(text)) {
    throw new RangeError('minor units are a bigint or a text of digits')
  }
  const digits = BigInt(text).toString().padStart(exponent + 1, '0')
  return exponent === 0 ? digits : `${digits.slice(0, -exponent)}.${digits.slice(-exponent)}`
}

function checkExponent(exponent: number): void {
  if (!Number.isInteger(exponent) || exponent < 0 || exponent > 38) {
    throw new RangeError('an exponent is a whole number from 0 to 38')
  }
}

/** Money: `fiat('USD')`. */
export const fiat = (currency: string): AssetDescriptor => ({ type: 'fiat', symbol: currency })

/** A token: `erc20('USDC', { chain: 'base' })`. */
export const erc20 = (symbol: string, at: { address?: string; chain?: string } = {}): AssetDescriptor => ({
  type: 'erc20',
  symbol,
  ...at,
})

/** A chain's coin: `native('ETH', { chain: 'base' })`. */
export const native = (symbol: string, at: { chain?: string } = {}): AssetDescriptor => ({
  type: 'native',
  symbol,
  ...at,
})
