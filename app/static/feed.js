// What is asked for again and again: the list of topics, and a topic's figures.

const LIST_EVERY_MS = 4000;
const FIGURES_EVERY_MS = 1000;
const FORBIDDEN = 403;
const PIPELINES = "tidegate.pipelines"; // the gateway's own: listed here once one has published its status

// Calls `take` with every topic's definition, and with null and the status of a refusal while there is
// no answer. A list that has not changed is not sent again: ten thousand definitions are 5 MB.
export function followTopics(gateway, take) {
  let maySeePipelines = true;
  const look = async () => {
    try {
      const topics = [...(await gateway.topics())];
      const pipelines = maySeePipelines ? await gateway.topic(PIPELINES).catch(unlessForbidden) : null;
      maySeePipelines = pipelines !== null;
      if (pipelines?.journal.messages > 0) topics.push(pipelines);
      take(topics);
    } catch (error) {
      take(null, error.status);
    }
    setTimeout(look, LIST_EVERY_MS);
  };
  look();
}

// A token of one topic need not give the gateway's own.
function unlessForbidden(error) {
  if (error.status !== FORBIDDEN) throw error;
  return null;
}

// Calls `take` with a topic's live figures once a second; the answer ends it.
export function followFigures(gateway, topic, take) {
  let timer = 0;
  let hasEnded = false;
  const look = async () => {
    try {
      const figures = await gateway.topic(topic);
      if (!hasEnded) take(figures, performance.now());
    } catch {
      // The stream notices too, and says so.
    }
    if (!hasEnded) timer = setTimeout(look, FIGURES_EVERY_MS);
  };
  look();
  return () => {
    hasEnded = true;
    clearTimeout(timer);
  };
}
