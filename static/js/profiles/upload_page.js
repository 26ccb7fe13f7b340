// The upload page: the plain form becomes the uploader.

import { mountUploader } from "./upload.js";

for (const form of document.querySelectorAll("[data-uploader]")) mountUploader(form);
