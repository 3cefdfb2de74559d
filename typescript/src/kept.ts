/** Values by calls of a framework; the oldest are dropped first. */
export class Kept<Value> {
  static readonly MAX = 1_000;
  readonly #values = new Map<string, Value>();

  keep(key: string, value: Value): void {
    this.#values.delete(key);
    this.#values.set(key, value);
    for (const oldest of this.#values.keys()) {
      if (this.#values.size <= Kept.MAX) break;
      this.#values.delete(oldest);
    }
  }

  take(key: string): Value | undefined {
    const value = this.#values.get(key);
    this.#values.delete(key);
    return value;
  }
}
