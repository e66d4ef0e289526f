// Starts what the page has: nothing here knows a particular page.
import { startCharts } from "./charts.js";
import { startDownloads } from "./downloads.js";
import { startExplanations } from "./explain.js";
import { startStream } from "./live.js";
import { startOffers } from "./offers.js";
import { startOutput } from "./output.js";
import { startTimes } from "./times.js";

startTimes();
startCharts();
startOutput();
startOffers();
startExplanations();
startDownloads();
startStream();
