// Where the instances of services run. A list of tasks tells of each only where it began last; its own page tells of all.

import * as api from "./api.js";

export const SERVICES_MAX = 20;
const LIVE = ["claimed", "running"];

export class Instances {
  /** `filters`: of which services; those that run are read one by one, up to so many. */
  constructor(page, filters) {
    this.page = page;
    this.tasks = new Map();
    this.list = page.watch(`/v1/tasks${api.query({ ...filters, kind: "service", state: LIVE.join(","), limit: SERVICES_MAX })}`, { topics: ["task"], slowMs: 1000, onData: (data) => this.follow(data) });
  }

  get isPart() {
    return Boolean(this.list.data?.next);
  }

  follow(data) {
    const ids = new Set(data.items.map((task) => task.id));
    for (const [id, task] of this.tasks) {
      if (ids.has(id)) continue;
      this.page.unwatch(task);
      this.tasks.delete(id);
    }
    for (const id of ids) {
      if (!this.tasks.has(id)) this.tasks.set(id, this.page.watch(api.path("/v1/tasks", id), { topics: ["task"], id, slowMs: 1000 }));
    }
  }

  /** The live actions, each with its task. */
  get actions() {
    return [...this.tasks.values()].flatMap(({ data }) => (data?.actions ?? []).filter((action) => LIVE.includes(action.state)).map((action) => ({ ...action, of: data })));
  }

  stop() {
    this.page.unwatch(this.list, ...this.tasks.values());
  }
}
