// Written by `skillhouse hooks install opencode`; `skillhouse hooks remove opencode` takes it away.
// Each call of a tool is judged by skillhouse before it runs.
import { spawn } from "node:child_process"

const LINES = {lines}

function asked(moment, event) {
  return new Promise((resolve) => {
    const child = spawn("/bin/sh", ["-c", LINES[moment]], { stdio: ["pipe", "pipe", "pipe"] })
    let said = ""
    let why = ""
    child.stdout.on("data", (part) => { said += part })
    child.stderr.on("data", (part) => { why += part })
    child.stdin.on("error", () => {})
    child.on("error", (error) => resolve({ code: 2, said: "", why: String(error) }))
    child.on("close", (code) => resolve({ code: code ?? 2, said, why }))
    child.stdin.end(JSON.stringify(event))
  })
}

const texts = new Map()

async function text(moment, event) {
  const { said } = await asked(moment, event)
  try { return JSON.parse(said).text ?? "" } catch { return "" }
}

export const Skillhouse = async ({ directory }) => ({
  "chat.message": async (input, output) => {
    const session = input.sessionID
    const typed = output.parts.filter((part) => part.type === "text" && !part.synthetic)
    const prompt = typed.map((part) => part.text).join("\n")
    const start = texts.get(session)?.start ?? await text("start", { session, directory })
    texts.set(session, { start, hint: await text("prompt", { session, directory, prompt }) })
  },
  "experimental.chat.system.transform": async (input, output) => {
    const { start, hint } = texts.get(input.sessionID) ?? {}
    output.system.push(...[start, hint].filter(Boolean))
  },
  "tool.execute.before": async (input, output) => {
    const event = { session: input.sessionID, directory, tool: input.tool, input: output.args, call: input.callID }
    const { code, said, why } = await asked("before", event)
    if (code !== 0) throw new Error(why.trim() || "skillhouse cannot judge")
    const answer = said.trim() ? JSON.parse(said) : {}
    if (answer.deny) throw new Error(answer.deny)
    if (answer.input) Object.assign(output.args, answer.input)
  },
  event: async ({ event }) => {
    if (event.type !== "session.idle") return
    await asked("next", { session: event.properties.sessionID, directory })
  },
  "tool.execute.after": async (input, output) => {
    await asked("after", { session: input.sessionID, directory, tool: input.tool, input: input.args ?? {}, call: input.callID })
  },
})
