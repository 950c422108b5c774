// Holds a running daemon to docs/openapi.yaml: the document is sound, it has the paths and arguments of the program's own
// table, every argument is answered with a status, a type and a content that the document describes, and is refused
// where it should be.
//   usage: node daemon_api.mjs NODE_MODULES SOCKET NAME=VALUE…     (values of arguments without an example)
import { createRequire } from 'node:module'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const require = createRequire(path.resolve(process.argv[2], 'x.js'))
// This one is an ES module, which Debian's node cannot require.
const { Validator } = await import(pathToFileURL(require.resolve('@seriousme/openapi-schema-validator')))
const { Ajv2020 } = require('ajv/dist/2020.js')
const formats = require('ajv-formats')
const YAML = require('yaml')
const text = fs.readFileSync('docs/openapi.yaml', 'utf8')
const api = YAML.parse(text)
const given = Object.fromEntries(process.argv.slice(4).map((word) => word.split('=')))
let failures = 0, requests = 0

function fail(what) {
  console.log(`FAIL: ${what}`)
  failures++
}

// ---- the document

const valid = await new Validator().validate(text)
if (!valid.valid) fail(`docs/openapi.yaml: ${JSON.stringify(valid.errors)}`)
const resolve = (o) => (o && o.$ref ? resolve(o.$ref.slice(2).split('/').reduce((at, key) => at[key], api)) : o)
const ajv = formats(new Ajv2020({ strict: true, allErrors: true, allowUnionTypes: true }))
ajv.addVocabulary(['components'])
ajv.addSchema({ $id: 'api', components: { schemas: api.components.schemas } })
const compiled = new Map()
function check(schema, value) {
  if (!compiled.has(schema)) compiled.set(schema, ajv.compile(JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"api#/'))))
  const is = compiled.get(schema)
  return is(value) ? '' : ajv.errorsText(is.errors).slice(0, 500)
}

const operations = []
for (const [at, item] of Object.entries(api.paths))
  for (const [method, o] of Object.entries(item)) {
    const parameters = (o.parameters || []).map(resolve)
    const responses = Object.fromEntries(Object.entries(o.responses).map(([status, r]) => [status, resolve(r)]))
    operations.push({ at, method: method.toUpperCase(), o, parameters, responses })
  }

// ---- the program's table of routes: { "GET", "/path", WORDS "words", function }

const source = fs.readFileSync('agent/http/api_routes.c', 'utf8')
const macros = Object.fromEntries([...source.matchAll(/^#define (\w+) +(.*)$/gm)].map((m) => [m[1], m[2]]))
const words = (code) =>
  code.split(/("[^"]*")/).flatMap((part) =>
    part.startsWith('"') ? part.slice(1, -1).split(' ') : (part.match(/\w+/g) || []).flatMap((name) => words(macros[name])))
const table = source.slice(source.indexOf('} routes[] = {'))
const routes = [...table.slice(0, table.indexOf('};')).matchAll(/\{ "(\w+)", "([^"]+)", ([^{}]*), \w+, \w+ \}/g)]
if (routes.length !== (table.slice(0, table.indexOf('};')).match(/\{ "/g) || []).length || routes.length < 10)
  fail('the table of routes cannot be read')
const NAMES = { labels: 'KEY', base_labels: 'base.KEY', chosen: 'KEY' }
const used = new Set()
for (const [, method, at, code] of routes) {
  const own = operations.filter((p) => p.method === method && (at.endsWith('/') && at !== '/' ? p.at.startsWith(at) : p.at === at))
  const known = words(code).filter(Boolean).sort().join(' ')
  if (!own.length) fail(`${method} ${at} is not described`)
  for (const p of own) {
    const described = p.parameters.filter((q) => q.in === 'query').map((q) => NAMES[q.name] || q.name).sort().join(' ')
    if (described !== known) fail(`${method} ${p.at} takes ${known}; described are ${described}`)
    used.add(p)
  }
}
for (const p of operations) if (!used.has(p)) fail(`${p.method} ${p.at} is not in the program`)

// ---- requests

function ask(method, url, body, headers = {}) {
  requests++
  return new Promise((done, failed) => {
    const r = http.request({ socketPath: process.argv[3], method, path: url, headers }, (reply) => {
      const parts = []
      reply.on('data', (part) => parts.push(part))
      reply.on('end', () => done({ status: reply.statusCode, allow: reply.headers.allow, type: (reply.headers['content-type'] || '').split(';')[0], body: Buffer.concat(parts) }))
    })
    r.on('error', failed)
    r.end(body)
  })
}

const encode = (q, value) =>
  typeof value === 'object'
    ? Object.entries(value).map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(v)}`).join('&')
    : `${q.name}=${encodeURIComponent(value)}`
const example = (q) => given[q.name] ?? q.example

// Ask with these values: [parameter, value]…; from is given in each request that takes it, unless it is left to wait.
async function expect(p, status, values, body) {
  const has = new Map(values.map(([q, value]) => [q.name, [q, value]]))
  for (const q of p.parameters)
    if (!has.has(q.name) && (q.required || q['x-given'] || (q.name === 'from' && !has.has('seconds')))) has.set(q.name, [q, example(q)])
  for (const [name, [, value]] of has) if (value === undefined) has.delete(name)
  let url = p.at
  const query = []
  for (const [q, value] of has.values())
    if (q.in === 'path') url = url.replace(`{${q.name}}`, encodeURIComponent(value))
    else query.push(encode(q, value))
  if (query.length) url += `?${query.join('&')}`
  const request = p.o.requestBody && Object.entries(p.o.requestBody.content)[0]
  let reply
  // On a busy machine a program may get no CPU in a second: record longer then.
  for (const seconds of [1, 4, 16]) {
    const longer = url.replace(/\bseconds=1\b/, `seconds=${seconds}`)
    reply = await ask(p.method, longer, body ?? request?.[1].example, request ? { 'Content-Type': request[0] } : {})
    if (reply.status !== 422 && reply.status !== 503) break
    if (!/no samples were recorded|were not written in time/.test(reply.body)) break
  }
  const name = `${p.method} ${url}: ${reply.status} ${reply.type}`
  const content = (p.responses[reply.status] || p.responses.default)?.content?.[reply.type]
  if (reply.status !== status) return fail(`${name}, not ${status}: ${reply.body.toString().slice(0, 300)}`)
  if (!content) return fail(`${name}: this type is not described`)
  try {
    const value = reply.type === 'application/json' ? JSON.parse(reply.body) : reply.body.toString()
    const wrong = check(content.schema, value)
    if (wrong) fail(`${name}: ${wrong}: ${reply.body.toString().slice(0, 300)}`)
  } catch (e) {
    fail(`${name}: ${e}: ${reply.body.toString().slice(0, 300)}`)
  }
}

async function try_all(p) {
  const tries = [] // [status, values]
  // What is left out has its default, with which a recording takes longest: first.
  for (const q of p.parameters) if (q['x-given']) tries.push([200, [[q, undefined]]])
  tries.push([200, []])
  for (const q of p.parameters) {
    const { schema } = q
    const values = schema.enum || [example(q)]
    if (values.some((v) => v === undefined)) fail(`${p.at}: ${q.name} has no example`)
    for (const value of values) tries.push([200, [[q, value]]])
    const refused = [q['x-refused'], schema.enum && 'no-such-word'].filter((v) => v !== undefined)
    if (schema.type === 'integer') refused.push('x', '', '1.5', schema.minimum - 1, BigInt(schema.maximum) + 1n)
    for (const value of refused) tries.push([400, [[q, value]]])
    if (q.required && q.in === 'query') tries.push([400, [[q, undefined]]])
  }
  if (!p.parameters.some((q) => q.name === 'labels')) tries.push([400, [[{ name: 'nosuch', in: 'query' }, '1']]])
  // Two at a time, as many as may record at the same time.
  const go_on = async () => { for (let next; (next = tries.shift());) await expect(p, ...next) }
  await Promise.all([go_on(), go_on()])
  const other = await ask('DELETE', p.at)
  if (other.status !== 405 || !`${other.allow}`.startsWith(p.method)) fail(`DELETE ${p.at}: ${other.status} ${other.allow}`)
}
await Promise.all(operations.map(try_all))
const by = Object.fromEntries(operations.map((p) => [p.o.operationId, p]))
const row = JSON.parse((await ask('POST', '/api/v1/query', "SELECT 1 AS one, 'x' AS two")).body)
if (JSON.stringify(row) !== '[{"one":1,"two":"x"}]') fail(`query: ${JSON.stringify(row)}`)
const sampled = JSON.parse((await ask('POST', '/api/v1/query', 'SELECT count(*) AS n, max(length(stack(node))) AS longest FROM samples')).body)
if (!(sampled[0]?.n > 0 && sampled[0].longest > 0)) fail(`samples: ${JSON.stringify(sampled)}`)
await expect(by.query, 413, [], 'x'.repeat(65537))
for (const sql of ['SELECT 1 FROM nothing', ';', '-- nothing', 'SELECT 1; SELECT 2', 'SELECT 1; SELEC']) await expect(by.query, 400, [], sql)
await expect(by.query, 200, [], 'SELECT 1; -- that is all')
const statuses = [
  [404, '/nothing', {}], [404, '/nothing?', {}], [403, '/healthz', { Origin: 'http://elsewhere.example' }],
  [414, `/api/v1/top?${'a=b&'.repeat(70)}`, {}], [404, '/api/v1/unwind', {}],
]
for (const [status, url, headers] of statuses) {
  const reply = await ask('GET', url, undefined, headers)
  if (reply.status !== status || reply.type !== 'text/plain' || check({ $ref: '#/components/schemas/Reason' }, reply.body.toString()))
    fail(`GET ${url.slice(0, 60)}: ${reply.status} ${reply.type}: ${reply.body}`)
}
if ((await ask('GET', '/healthz?')).status !== 200) fail('an empty argument is refused')
if ((await ask('GET', '/api/v1/openapi.yaml')).body.toString() !== text) fail('the daemon serves another description')
console.log(`${operations.length} operations, ${requests} requests`)
process.exit(failures ? 1 : 0)
