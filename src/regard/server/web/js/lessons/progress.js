// What was answered, kept in this browser: by lesson, model, text and step.
const PLACE = "regard-lessons";
const MOST = 600; // answers that are kept

/** @typedef {{answers: [string, any][], steps: Record<string, number>}} Progress */

/** @returns {Progress} */
function read() {
  try {
    const { answers, steps } = JSON.parse(localStorage.getItem(PLACE) ?? "{}");
    return { answers: Array.isArray(answers) ? answers : [], steps: steps ?? {} };
  } catch {
    return { answers: [], steps: {} }; // no storage here, or something else in it
  }
}

const stored = read();
const answers = new Map(stored.answers); // null: shown without a guess
const steps = stored.steps; // how many a lesson has

function save() {
  try {
    const content = { answers: [...answers].slice(-MOST), steps };
    localStorage.setItem(PLACE, JSON.stringify(content));
  } catch {
    // without storage the answers stay until the page is closed
  }
}

/** @typedef {{name: string, key: string}} Lesson */

/** @param {Lesson} lesson @param {number} i */
const id = ({ key }, i) => `${key} ${i}`;
/** @param {Lesson} lesson @param {number} i */
export const isAnswered = (lesson, i) => answers.has(id(lesson, i));
/** @param {Lesson} lesson @param {number} i */
export const answerOf = (lesson, i) => answers.get(id(lesson, i));
/** @param {Lesson} lesson @param {number} i */
export const mark = (lesson, i) => (isAnswered(lesson, i) ? `${i + 1} ✓` : String(i + 1));

/** @param {Lesson} lesson @param {number} i @param {any} answer */
export function keep(lesson, i, answer) {
  answers.set(id(lesson, i), answer);
  save();
}

/** @param {string} name @param {number} count */
export function countSteps(name, count) {
  if (steps[name] === count) return;
  steps[name] = count;
  save();
}

/** "2 of 5 steps", of the model and text that went furthest; nothing if none was answered. @param {string} name */
export function progressOf(name) {
  const done = new Map();
  for (const key of answers.keys()) {
    const end = key.lastIndexOf(" ");
    const lesson = key.slice(0, end);
    if (lesson.startsWith(`["${name}",`)) done.set(lesson, (done.get(lesson) ?? 0) + 1);
  }
  const most = Math.max(0, ...done.values());
  return most ? `${most} of ${Math.max(most, steps[name] ?? 0)} steps answered` : "";
}

export function forget() {
  answers.clear();
  save();
}
