// The search of the site runs in a worker, and a browser starts no worker for a page that was opened from a file.
// There, a hidden frame runs the worker's script: the same messages, on the page's own thread.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #loaded;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.#receive(data));
      inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => this.#run(next)), Promise.resolve());
      this.#loaded = this.#run(url);
      this.#loaded.catch((error) => this.onerror?.(new ErrorEvent("error", { message: String(error) })));
    }

    postMessage(data) {
      this.#loaded.then(() => {
        const inside = this.#frame.contentWindow;
        inside?.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.#frame.remove();
    }

    #receive(data) {
      const message = new MessageEvent("message", { data });
      this.dispatchEvent(message);
      this.onmessage?.(message);
    }

    #run(url) {
      return new Promise((resolve, reject) => {
        const script = this.#frame.contentDocument.createElement("script");
        script.src = new URL(url, document.baseURI);
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${url}`));
        this.#frame.contentDocument.body.append(script);
      });
    }
  };
}
