// Prints what npm's pprof-format reads from pprof files, as JSON on standard output, and writes each file again
// with it, beside the original.
//   usage: node pprof_readers.mjs NODE_MODULES FILE…
import { createRequire } from 'node:module'
import fs from 'node:fs'
import path from 'node:path'
import zlib from 'node:zlib'

const { Profile } = createRequire(path.resolve(process.argv[2], 'x.js'))('pprof-format')
const all = {}
for (const name of process.argv.slice(3)) {
  const p = Profile.decode(zlib.gunzipSync(fs.readFileSync(name)))
  const text = (i) => p.stringTable.strings[Number(i)]
  const by = (list) => new Map(list.map((x) => [Number(x.id), x]))
  const locations = by(p.location), functions = by(p.function), mappings = by(p.mapping)
  all[name] = {
    types: p.sampleType.map((t) => [text(t.type), text(t.unit)]),
    default: text(p.defaultSampleType),
    comments: p.comment.map(text),
    samples: p.sample.map((s) => ({
      values: s.value.map(Number),
      labels: s.label.map((l) => [text(l.key), Number(l.str) ? text(l.str) : Number(l.num)]),
      frames: s.locationId.flatMap((id) => {
        const l = locations.get(Number(id)), m = mappings.get(Number(l.mappingId))
        return l.line.map((line) => {
          const f = functions.get(Number(line.functionId))
          return [text(f.name), text(f.filename), Number(line.line), m ? text(m.filename) : '']
        })
      }),
    })),
  }
  fs.writeFileSync(name.replace('.pb.gz', '.again.pb'), p.encode())
}
process.stdout.write(JSON.stringify(all))
