// The one socket: questions with an id, answers as a header and byte strings. Open questions outlive a lost line.

export class Live {
  constructor(onChange) {
    this.onChange = onChange;
    this.open = new Map();
    this.next = 1;
    this.wait = 250;
    this.connect();
  }

  connect() {
    const address = new URL("./live", document.baseURI);
    address.protocol = "ws:";
    address.hash = "";
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.socket.addEventListener("open", () => {
      this.wait = 250;
      for (const question of this.open.values()) this.socket.send(question.text);
      this.onChange();
    });
    this.socket.addEventListener("message", (event) => this.receive(event.data));
    this.socket.addEventListener("close", (event) => {
      this.reason = event.reason;
      this.onChange();
      setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(4000, this.wait * 2);
    });
  }

  get connected() { return this.socket.readyState === WebSocket.OPEN; }

  receive(data) {
    if (typeof data === "string") {
      const event = JSON.parse(data);
      if (event.event === "worker") this.onChange("restarted");
      return;
    }
    const view = new DataView(data);
    const id = view.getUint32(0, true);
    const length = view.getUint32(4, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 8, length)));
    let at = 8 + length;
    const blobs = header.blobs.map((size) => { at += size; return data.slice(at - size, at); });
    const question = this.open.get(id);
    if (!question) return;
    this.open.delete(id);
    this.onChange();
    if (header.error) question.reject(new Error(header.error));
    else question.resolve({ header, blobs });
  }

  ask(ask, options = {}) {
    const id = this.next;
    this.next += 1;
    const text = JSON.stringify({ id, ask, with: options });
    return new Promise((resolve, reject) => {
      this.open.set(id, { text, resolve, reject, ask });
      this.onChange();
      if (this.connected) this.socket.send(text);
    });
  }
}

// Of loads that overlap the last one counts: each turn that is taken says whether a later one was taken since.
export function turns() {
  let last = 0;
  return () => {
    last += 1;
    const mine = last;
    return () => mine !== last;
  };
}

// Of calls that come faster than they are answered only the newest waits.
export function newest(work) {
  let running = false;
  let waiting = null;
  return async function call(...options) {
    if (running) { waiting = options; return; }
    running = true;
    try {
      await work(...options);
    } finally {
      running = false;
      if (waiting) { const next = waiting; waiting = null; call(...next); }
    }
  };
}
