#!/usr/bin/env node
// `dvp sandbox` with the arguments that are given, until it ends.
'use strict'
const { spawn } = require('node:child_process')
const { join } = require('node:path')

const child = spawn(join(__dirname, 'dvp'), ['sandbox', ...process.argv.slice(2)], { stdio: 'inherit' })
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
child.on('error', (error) => {
  console.error(`dvp-sandbox: ${error.message}`)
  process.exitCode = 1
})
child.on('exit', (code, signal) => {
  process.exitCode = signal ? 1 : (code ?? 1)
})
