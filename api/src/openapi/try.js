// Sends what a form of this page asks for, with the key typed above. What is typed stays in the page.
'use strict'

const field = (id) => document.getElementById(id).value.trim()
const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('')

async function signature(method, path, body) {
  const [at, nonce] = [String(Math.floor(Date.now() / 1000)), crypto.randomUUID()]
  const bytes = (text) => new TextEncoder().encode(text)
  const hmac = { name: 'HMAC', hash: 'SHA-256' }
  const key = await crypto.subtle.importKey('raw', bytes(field('try-secret')), hmac, false, ['sign'])
  const signed = await crypto.subtle.sign('HMAC', key, bytes(method + path + at + nonce + body))
  return { 'X-Timestamp': at, 'X-Nonce': nonce, 'X-Signature': hex(signed) }
}

async function send(form) {
  const { method, idempotency, signed } = form.dataset
  const query = new URLSearchParams()
  let path = form.dataset.path
  const headers = { 'X-API-Key': field('try-key') }
  for (const { name, value, dataset } of form.elements) {
    if (!name || !value) continue
    if (dataset.in === 'path') path = path.replace(`{${name}}`, encodeURIComponent(value))
    if (dataset.in === 'query') query.append(name, value)
  }
  if (query.size) path += `?${query}`
  const body = form.elements.body?.value ?? ''
  if (body) headers['Content-Type'] = 'application/json'
  if (idempotency) headers['X-Idempotency-Key'] = crypto.randomUUID()
  if (signed) Object.assign(headers, await signature(method, path, body))
  const response = await fetch(path, { method, headers, body: body || undefined })
  const text = await response.text()
  let shown = text
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2)
  } catch {}
  return `${response.status} ${response.statusText}\n${shown}`
}

document.addEventListener('submit', async (event) => {
  event.preventDefault()
  const answer = event.target.querySelector('output')
  answer.textContent = '…'
  try {
    answer.textContent = await send(event.target)
  } catch (failed) {
    answer.textContent = String(failed)
  }
})
