// Draws openapi.json: each route with the fields that it reads and answers. All text is set as text.

import { make } from "./a11y.js";

const element = (tag, ...inside) => make(tag, {}, ...inside);

/** The schema that a reference means. */
function resolved(schema, document) {
  const name = schema?.$ref?.split("/").pop();
  return name ? document.components.schemas[name] : schema;
}

/** A schema in a few words. */
function words(schema, document, depth = 0) {
  if (!schema) return "anything";
  if (schema.$ref) {
    const inside = resolved(schema, document);
    return depth > 2 || !inside.properties
      ? schema.$ref.split("/").pop()
      : `{${Object.entries(inside.properties)
          .map(([name, property]) => `${name}: ${words(property, document, depth + 1)}`)
          .join(", ")}}`;
  }
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" or ");
  if (schema.anyOf) return schema.anyOf.map((each) => words(each, document, depth)).join(" or ");
  if (schema.type === "array") return `list of ${words(schema.items, document, depth)}`;
  const type = Array.isArray(schema.type) ? schema.type.join(" or ") : (schema.type ?? "anything");
  const limits = [
    ["minimum", "from"],
    ["maximum", "to"],
    ["maxLength", "characters at most"],
    ["exclusiveMaximum", "below"],
  ]
    .filter(([name]) => schema[name] !== undefined)
    .map(([name, word]) => `${word} ${schema[name]}`);
  return limits.length ? `${type} (${limits.join(", ")})` : type;
}

/** The fields of an object as a table. */
function fields(schema, document) {
  const object = resolved(schema, document);
  if (!object?.properties) return element("p", words(schema, document));
  const table = element("table");
  for (const [name, each] of Object.entries(object.properties)) {
    const needed = object.required?.includes(name)
      ? "needed"
      : each.default === undefined
        ? ""
        : `else ${JSON.stringify(each.default)}`;
    const head = make("th", { scope: "row" }, element("code", name));
    table.append(
      element("tr", head, element("td", words(each, document)), element("td", each.description ?? needed)),
    );
  }
  return table;
}

function route(method, path, operation, document) {
  const box = element(
    "details",
    element("summary", element("code", `${method.toUpperCase()} ${path}`), ` ${operation.summary}`),
  );
  const body = operation.requestBody?.content;
  if (body)
    box.append(
      element("h3", `Reads ${Object.keys(body).join(" or ")}`),
      fields((body["application/json"] ?? Object.values(body)[0]).schema, document),
    );
  const answer = operation.responses["200"]?.content;
  if (answer)
    box.append(
      element("h3", `Answers ${Object.keys(answer).join(" or ")}`),
      fields(Object.values(answer)[0].schema, document),
    );
  const others = Object.entries(operation.responses).filter(([status]) => status !== "200");
  box.append(
    element("h3", "Refuses"),
    element("p", others.map(([status, each]) => `${status}: ${each.description}`).join(" ")),
  );
  return box;
}

async function draw() {
  const place = document.getElementById("routes");
  try {
    const spec = await (await fetch("/openapi.json")).json();
    const groups = new Map();
    for (const [path, methods] of Object.entries(spec.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        const group = operation.tags?.[0] ?? "Others";
        if (!groups.has(group)) groups.set(group, element("section", element("h2", group)));
        groups.get(group).append(route(method, path, operation, spec));
      }
    }
    place.replaceChildren(...groups.values());
  } catch (error) {
    place.textContent = `The routes could not be read: ${error.message}`;
  }
}

draw();
