/** The service that the tests are started beside, and models that say what they are told to. */

import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";

import { type Connection, SkillhouseClient } from "../src/client.ts";

function given(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`the tests need ${name} of a running service`);
  return value;
}

export const CONNECTION: Connection = {
  url: given("SKILLHOUSE_URL"),
  token: given("SKILLHOUSE_TOKEN"),
  approvalToken: given("SKILLHOUSE_APPROVAL_TOKEN"),
};

export function client(changes: Partial<Connection> = {}): SkillhouseClient {
  return new SkillhouseClient({ ...CONNECTION, ...changes });
}

/** The text of a file in the workspace; undefined where there is none. */
export async function written(path: string): Promise<string | undefined> {
  return readFile(join(given("SKILLHOUSE_WORKSPACE"), path), "utf8").catch(() => undefined);
}

export interface ToolCall {
  readonly id: string;
  readonly tool: string;
  readonly input: Readonly<Record<string, unknown>>;
}

const USAGE = {
  inputTokens: { total: 1, noCache: 1, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 1, text: 1, reasoning: undefined },
};

/** A model that makes these calls in one step, and then says the last result that it got. */
export function model(...calls: readonly ToolCall[]): MockLanguageModelV4 {
  return inTurn(calls);
}

/** A model that makes the calls of each step, and then says the last result that it got. */
export function inTurn(...steps: readonly (readonly ToolCall[])[]): MockLanguageModelV4 {
  const waiting = steps.filter((calls) => calls.length > 0);
  return new MockLanguageModelV4({
    doGenerate: async ({ prompt }) => {
      const now = waiting.shift();
      if (now === undefined) {
        return {
          content: [{ type: "text", text: JSON.stringify(prompt.at(-1)) }],
          finishReason: { unified: "stop", raw: undefined },
          usage: USAGE,
          warnings: [],
        };
      }
      return {
        content: now.map(({ id, tool, input }) => ({
          type: "tool-call",
          toolCallId: id,
          toolName: tool,
          input: JSON.stringify(input),
        })),
        finishReason: { unified: "tool-calls", raw: undefined },
        usage: USAGE,
        warnings: [],
      };
    },
  });
}

type Streamed = Awaited<ReturnType<MockLanguageModelV4["doStream"]>>["stream"];
type StreamPart = Streamed extends ReadableStream<infer Part> ? Part : never;

/** A model as `model` makes it, for `streamText`. */
export function streamed(...calls: readonly ToolCall[]): MockLanguageModelV4 {
  const whole = model(...calls);
  return new MockLanguageModelV4({
    doStream: async (options) => {
      const { content, finishReason, usage } = await whole.doGenerate(options);
      const parts = content.flatMap((part): StreamPart[] => {
        if (part.type === "tool-call") return [part];
        if (part.type !== "text") throw new Error(`no stream of ${part.type}`);
        return [
          { type: "text-start", id: "1" },
          { type: "text-delta", id: "1", delta: part.text },
          { type: "text-end", id: "1" },
        ];
      });
      const start: StreamPart = { type: "stream-start", warnings: [] };
      const finish: StreamPart = { type: "finish", finishReason, usage };
      return { stream: convertArrayToReadableStream([start, ...parts, finish]) };
    },
  });
}

export function write(id: string, path: string, content: string): ToolCall {
  return { id, tool: "write", input: { path, content } };
}
